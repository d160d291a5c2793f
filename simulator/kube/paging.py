"""List objects: selectors, and pages with continue tokens."""

import base64
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any

import msgspec

from simulator.kube.kinds import ApiKind
from simulator.kube.selectors import parse_field_selector, parse_label_selector
from simulator.kube.status import GONE_LIST, StatusError, build_bad_request
from simulator.kube.store import ObjectStore

Object = dict[str, Any]

_INCONSISTENT = -1


class Token(msgspec.Struct, frozen=True):
    """Where a list continues: after a key, in the snapshot of a version."""

    rv: int
    start: str
    v: str = "meta.k8s.io/v1"

    def text(self) -> str:
        """Return it as the query carries it."""
        return base64.urlsafe_b64encode(msgspec.json.encode(self)).decode().rstrip("=")


class ListPage(msgspec.Struct, frozen=True):
    """One page: its objects, its version, and its continue token."""

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


def list_page(
    store: ObjectStore,
    kind: ApiKind,
    namespace: str,
    query: Mapping[str, str],
    *,
    expired: bool = False,
    fresh: bool = True,
) -> ListPage:
    """Return one page of a kind; `expired` treats the token as too old, `fresh` offers another.

    Raises:
        ApiError: 400 bad query, 410 the token is too old, 504 a version that is not there yet.
    """
    tests = [
        parse_label_selector(query.get("labelSelector")),
        parse_field_selector(kind, query.get("fieldSelector")),
    ]
    active_tests = [t for t in tests if t is not None]
    limit = _parse_number(query, "limit")
    with store.changed:
        token = _parse_token(query.get("continue"))
        version = _parse_version(store, query, token)
        if token is not None and (expired or 0 <= token.rv < store.history.forgotten):
            again = Token(_INCONSISTENT, token.start).text() if fresh else ""
            raise StatusError(410, "Expired", GONE_LIST, token=again)
        if version == store.version:
            keys, objects = store.keys(kind), store.shelf(kind)
        else:
            objects = store.at(kind, version)
            keys = sorted(objects)
        first, last = _compute_bounds(keys, namespace if kind.namespaced else "", token)
        page_items: list[tuple[str, Object]] = []
        for key in islice(keys, first, last):
            item = objects[key]
            if all(test(item) for test in active_tests):
                page_items.append((key, item))
            if limit and len(page_items) > limit:
                break
    if not limit or len(page_items) <= limit:
        return ListPage([o for _, o in page_items], version)
    left = None if active_tests else last - first - limit
    page = page_items[:limit]
    return ListPage([o for _, o in page], version, Token(version, page[-1][0]).text(), left)


def _compute_bounds(keys: Sequence[str], namespace: str, token: Token | None) -> tuple[int, int]:
    """Return the index range of a namespace's keys, after the token's."""
    first, last = 0, len(keys)
    if namespace:
        first, last = bisect_left(keys, f"{namespace}/"), bisect_left(keys, f"{namespace}0")
    return first if token is None else max(first, bisect_right(keys, token.start)), last


def _parse_token(text: str | None) -> Token | None:
    if not text:
        return None
    try:
        padded = text + "=" * (-len(text) % 4)
        return msgspec.json.decode(base64.urlsafe_b64decode(padded), type=Token)
    except (ValueError, msgspec.DecodeError) as error:
        raise build_bad_request(f"continue key is not valid: {error}") from error


def _parse_version(store: ObjectStore, query: Mapping[str, str], token: Token | None) -> int:
    wanted_version = _parse_number(query, "resourceVersion")
    if token is not None:
        return store.version if token.rv == _INCONSISTENT else token.rv
    if wanted_version > store.version:
        message = f"Too large resource version: {wanted_version}, current: {store.version}"
        causes = [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]
        details = {"causes": causes, "retryAfterSeconds": 1}
        raise StatusError(504, "Timeout", message, details, retry_after=1)
    return store.version


def _parse_number(query: Mapping[str, str], field: str) -> int:
    text = query.get(field) or "0"
    if not text.isdecimal():
        raise build_bad_request(f'Invalid value: "{text}": {field} must be a number')
    return int(text)
