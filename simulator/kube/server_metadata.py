"""Write the metadata that the server itself sets: names, uids, times, generations."""

import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from functools import lru_cache
from hashlib import blake2b
from typing import Any
from uuid import UUID

from simulator.kube.kinds import ApiKind
from simulator.kube.status import InvalidField

Object = dict[str, Any]

_LETTERS = "bcdfghjklmnpqrstvwxz2456789"
_NAME = re.compile(r"^[a-z0-9]([-a-z0-9.:]*[a-z0-9])?$")
_LONGEST = 253
_LEFT_OUT = ("labels", "annotations", "finalizers", "ownerReferences")
"""Fields that are left out of metadata when they are empty."""
_SERVER = ("uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds")


@lru_cache(maxsize=4096)
def format_time(seconds: float) -> str:
    """Return seconds since the epoch as the server writes times, to the second."""
    return datetime.fromtimestamp(int(seconds), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@lru_cache(maxsize=4096)
def parse_time(text: str) -> float:
    """Return seconds since the epoch of a time that the server wrote; 0 for none."""
    return datetime.fromisoformat(text).timestamp() if text else 0.0


def build_key(namespace: str, name: str) -> str:
    """Return the key of an object; keys sort as the server lists."""
    return f"{namespace}/{name}" if namespace else name


class IdentityGenerator:
    """Uids and name endings of one seed: the n-th is always the same."""

    def __init__(self, seed: int) -> None:
        self._seed, self._count = seed, 0

    def _next(self) -> bytes:
        self._count += 1
        return blake2b(f"{self._seed}:{self._count}".encode(), digest_size=16).digest()

    def uid(self) -> str:
        """Return a uid that no object has had."""
        return str(UUID(bytes=self._next(), version=4))

    def ending(self) -> str:
        """Return five letters for `generateName`."""
        return "".join(_LETTERS[b % len(_LETTERS)] for b in self._next()[:5])


def build_initial_metadata(
    kind: ApiKind, item: Object, draws: IdentityGenerator, now: float
) -> Object:
    """Return a new object with the metadata that the server sets."""
    meta = {
        k: v
        for k, v in item["metadata"].items()
        if k not in {*_SERVER, "resourceVersion", "managedFields", "selfLink", "generation"}
    }
    if not meta.get("name") and meta.get("generateName"):
        meta["name"] = meta["generateName"] + draws.ending()
    if not kind.namespaced:
        meta.pop("namespace", None)
    meta |= {"uid": draws.uid(), "creationTimestamp": format_time(now)}
    if kind.generation:
        meta["generation"] = 1
    return {"apiVersion": kind.api_version, "kind": kind.kind, **item, "metadata": meta}


def find_invalid_metadata(meta: Object) -> Iterator[InvalidField]:
    """Yield what is wrong with a name, labels or annotations."""
    name = meta.get("name")
    if not name:
        yield InvalidField(
            "metadata.name",
            "Required value: name or generateName is required",
            "FieldValueRequired",
        )
    elif len(name) > _LONGEST or not _NAME.match(name):
        message = (
            f'Invalid value: "{name}": a lowercase RFC 1123 subdomain must consist of lower case'
        )
        more = "alphanumeric characters, '-' or '.', and must start and end with an alphanumeric"
        yield InvalidField("metadata.name", f"{message} {more} character")
    for field in ("labels", "annotations"):
        words = meta.get(field) or {}
        if not isinstance(words, Mapping):
            yield InvalidField(
                f"metadata.{field}", "Invalid value: must be a map", "FieldValueTypeInvalid"
            )
            continue
        for word, value in words.items():
            if not isinstance(value, str):
                message = f"Invalid value: {value!r}: {word} must be a string"
                yield InvalidField(f"metadata.{field}", message, "FieldValueTypeInvalid")


def keep_server_fields(old: Object, new: Object) -> Object:
    """Return changed metadata with the server's own fields as they were."""
    meta = dict(new["metadata"])
    for field in (*_SERVER, "generation", "managedFields", "selfLink", "name", "namespace"):
        if field in old["metadata"]:
            meta[field] = old["metadata"][field]
        else:
            meta.pop(field, None)
    return {k: v for k, v in meta.items() if v or k not in _LEFT_OUT}


def is_new_generation(kind: ApiKind, old: Object, new: Object) -> bool:
    """Return whether a change makes a new generation of an object."""
    if not kind.generation:
        return False
    if kind.generation == "all":
        skip = {"metadata", "status"} if kind.status else {"metadata"}
        return {k: v for k, v in old.items() if k not in skip} != {
            k: v for k, v in new.items() if k not in skip
        }
    if old.get("spec") != new.get("spec"):
        return True
    if kind.custom:  # fields beside spec count too
        rest = {"metadata", "status", "spec"}
        return {k: v for k, v in old.items() if k not in rest} != {
            k: v for k, v in new.items() if k not in rest
        }
    return kind.generation == "annotations" and (old["metadata"].get("annotations") or {}) != (
        new["metadata"].get("annotations") or {}
    )
