"""Define the parts that every API response has around its objects."""

from typing import Generic, TypeVar

import msgspec

T = TypeVar("T")


class ApiObject(msgspec.Struct, rename="camel", frozen=True, gc=False):
    """Base of all shapes: camelCase names; unknown fields are skipped."""


class ListMeta(ApiObject, frozen=True):
    """The position of a list."""

    resource_version: str = ""
    continue_: str | None = msgspec.field(default=None, name="continue")
    remaining_item_count: int | None = None


class Page(ApiObject, Generic[T], frozen=True):
    """One page of a list."""

    items: list[T] | None = None
    metadata: ListMeta = ListMeta()


class StatusCause(ApiObject, frozen=True):
    """One of the reasons of a refusal."""

    reason: str | None = None
    message: str | None = None
    field: str | None = None


class StatusDetails(ApiObject, frozen=True):
    """The details of a refusal beside its message."""

    name: str | None = None
    kind: str | None = None
    causes: list[StatusCause] | None = None
    retry_after_seconds: float | None = None


class ApiStatus(ApiObject, frozen=True):
    """The API server's response when it returns no object."""

    code: int | None = None
    reason: str | None = None
    message: str | None = None
    details: StatusDetails | None = None
    metadata: ListMeta = ListMeta()
