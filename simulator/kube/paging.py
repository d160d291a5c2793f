"""Lists: selectors, pages with continue tokens, and the versions a caller may insist on."""

import base64
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any

import msgspec

from simulator.kube.kinds import Kind
from simulator.kube.selectors import by_fields, by_labels
from simulator.kube.status import GONE_LIST, ApiError, Wrong, bad_request, invalid
from simulator.kube.store import Store

Object = dict[str, Any]

_INCONSISTENT = -1


class Token(msgspec.Struct, frozen=True):
    """Where a list goes on: after a key, in the snapshot of a version."""

    rv: int
    start: str
    v: str = "meta.k8s.io/v1"

    def text(self) -> str:
        """Return it as the query carries it."""
        return base64.urlsafe_b64encode(msgspec.json.encode(self)).decode().rstrip("=")


class Listed(msgspec.Struct, frozen=True):
    """One page: its objects, the version it shows, and how to go on."""

    objects: list[Object]
    version: int
    token: str = ""
    remaining: int | None = None

    def metadata(self) -> Object:
        """Return the list's metadata."""
        out: Object = {"resourceVersion": str(self.version)}
        if self.token:
            out["continue"] = self.token
        if self.remaining:
            out["remainingItemCount"] = self.remaining
        return out


def listed(
    store: Store,
    kind: Kind,
    namespace: str,
    query: Mapping[str, str],
    *,
    expired: bool = False,
    fresh: bool = True,
) -> Listed:
    """Return one page of a kind; `expired` treats the token as too old, `fresh` offers another.

    Raises:
        ApiError: 400 bad query, 410 token or version too old, 422 options that exclude each other,
            504 a version that is not there yet.
    """
    tests = [by_labels(query.get("labelSelector")), by_fields(kind, query.get("fieldSelector"))]
    chosen = [t for t in tests if t is not None]
    limit = _number(query, "limit")
    with store.changed:
        token = _token(query.get("continue"))
        version = _version(store, query, token)
        if token is not None and (expired or 0 <= token.rv < store.history.forgotten):
            again = Token(_INCONSISTENT, token.start).text() if fresh else ""
            raise ApiError(410, "Expired", GONE_LIST, token=again)
        if version == store.version:
            keys, objects = store.keys(kind), store.shelf(kind)
        else:
            objects = store.at(kind, version)
            keys = sorted(objects)
        first, last = _bounds(keys, namespace if kind.namespaced else "", token)
        found: list[tuple[str, Object]] = []
        for key in islice(keys, first, last):
            item = objects[key]
            if all(test(item) for test in chosen):
                found.append((key, item))
            if limit and len(found) > limit:
                break
    if not limit or len(found) <= limit:
        return Listed([o for _, o in found], version)
    left = None if chosen else last - first - limit
    page = found[:limit]
    return Listed([o for _, o in page], version, Token(version, page[-1][0]).text(), left)


def _bounds(keys: Sequence[str], namespace: str, token: Token | None) -> tuple[int, int]:
    """Return the places of a namespace's keys, after the token's."""
    first, last = 0, len(keys)
    if namespace:
        first, last = bisect_left(keys, f"{namespace}/"), bisect_left(keys, f"{namespace}0")
    return first if token is None else max(first, bisect_right(keys, token.start)), last


def _token(text: str | None) -> Token | None:
    if not text:
        return None
    try:
        padded = text + "=" * (-len(text) % 4)
        return msgspec.json.decode(base64.urlsafe_b64decode(padded), type=Token)
    except (ValueError, msgspec.DecodeError) as error:
        raise bad_request(f"continue key is not valid: {error}") from error


def _version(store: Store, query: Mapping[str, str], token: Token | None) -> int:
    match = query.get("resourceVersionMatch", "")
    asked = _number(query, "resourceVersion")
    if match:
        _legal_match(match, asked, token)
    if token is not None:
        return store.version if token.rv == _INCONSISTENT else token.rv
    if asked > store.version:
        said = f"Too large resource version: {asked}, current: {store.version}"
        causes = [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]
        details = {"causes": causes, "retryAfterSeconds": 1}
        raise ApiError(504, "Timeout", said, details, retry_after=1)
    if match != "Exact":
        return store.version
    if asked < store.history.forgotten:
        raise ApiError(
            410, "Expired", f"The resourceVersion for the provided list is too old: {asked}"
        )
    return asked


def _legal_match(match: str, asked: int, token: Token | None) -> None:
    field = "resourceVersionMatch"
    if match not in {"Exact", "NotOlderThan"}:
        said = f'Unsupported value: "{match}": supported values: "Exact", "NotOlderThan"'
    elif token is not None:
        said = "Forbidden: resourceVersionMatch is forbidden when continue is provided"
    elif not asked and match == "Exact":
        said = 'Forbidden: resourceVersionMatch "Exact" is forbidden for resourceVersion "0"'
    else:
        return
    raise invalid("meta.k8s.io", "ListOptions", "", [Wrong(field, said, "FieldValueForbidden")])


def _number(query: Mapping[str, str], field: str) -> int:
    text = query.get(field) or "0"
    if not text.isdecimal():
        raise bad_request(f'Invalid value: "{text}": {field} must be a number')
    return int(text)
