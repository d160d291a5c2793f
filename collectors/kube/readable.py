"""Read objects one by one where a page of them cannot be decoded whole.

A field that cannot be read counts as absent, and `unreadable` of the metadata names it. An object
without a readable identity is refused.
"""

import json
import re
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import msgspec

from collectors.kube.shapes import CustomObject, Event, Node, Partial, Pod
from fallow.kube.api_objects import Page
from fallow.rejections import Rejection

T = TypeVar("T", bound=Partial | Node | Pod | Event | CustomObject)
Reject = Callable[[Rejection], None]

MOST_FAULTS = 64
"""Fields of an object that may be unreadable; one with more is refused."""
DEEPEST = 200
"""Levels of an object that are read; the deepest kinds that Fallow reads have about 20."""
LONGEST_FAULT = 1000
_TOKENS = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[\[\]{},]', re.DOTALL)
_SURROGATES = re.compile(
    rb"\\(?:u[dD][89abAB]\w\w\\u[dD][c-fC-F]\w\w|(u[dD][89a-fA-F]\w\w)|.)", re.DOTALL
)
_STEPS = re.compile(r"\.([^.\[]+)|\[(\d+|\.\.\.)\]")
_ERROR = re.compile(r"(?:got `(\w+)`)?(?: - at `(?:key in )?\$(.*)`)?$")
_IDENTITY = frozenset({"", ".metadata", ".metadata.name", ".metadata.namespace", ".metadata.uid"})
_TYPES = {dict: "object", list: "array", type(None): "null"}
_TABLES: dict[type, str] = {Node: "node", Pod: "pod", Event: "event"}
_DIGITS = 18


class PageDecoder(Generic[T]):
    """Decode pages of a list; an object that cannot be read costs only itself."""

    def __init__(self, shape: type[T], reject: Reject) -> None:
        self._pages: msgspec.json.Decoder[Page[T]] = msgspec.json.Decoder(Page[shape])  # type: ignore[valid-type]
        self._shape, self._reject = shape, reject

    def decode(self, body: bytes) -> Page[T]:
        """Return a page.

        Raises:
            msgspec.DecodeError: the body is no list.
        """
        try:
            page = self._pages.decode(body)
            if all(item.metadata.name for item in page.items or ()):
                return page
        except (ValueError, RecursionError):
            pass
        around, elements = split_items(body)
        page = self._pages.decode(around)
        items = (read_object(element, self._shape, self._reject) for element in elements)
        return msgspec.structs.replace(page, items=[item for item in items if item is not None])


def split_items(body: bytes) -> tuple[bytes, list[bytes]]:
    """Return a list's JSON without its items, and the text of each item."""
    elements: list[bytes] = []
    begin: int | None = None
    key, depth, first, last = b"", 0, 0, 0
    for match in _TOKENS.finditer(body):
        token = match[0]
        if token in b"]}":
            depth -= 1
        if begin is not None and token in b",]" and depth == (1 if token == b"]" else 2):
            elements.append(body[begin : match.start()].strip())
            begin = match.end()
            if token == b"]":
                last, begin = match.start(), None
        if token in b"[{":
            depth += 1
            if token == b"[" and depth == 2 and key == b'"items"' and not first:  # noqa: PLR2004  (inside the list)
                first = begin = match.end()
        key = token
    around = body[:first] + body[last:] if last else body
    return around, [element for element in elements if element]


def prune(raw: bytes) -> bytes:
    """Return JSON with `null` for what is nested too deeply."""
    parts: list[bytes] = []
    depth = begin = 0
    for match in _TOKENS.finditer(raw):
        if match[0] in b"[{":
            depth += 1
            if depth == DEEPEST:
                parts += raw[begin : match.start()], b"null"
        elif match[0] in b"]}":
            if depth == DEEPEST:
                begin = match.end()
            depth -= 1
    return b"".join([*parts, raw[begin:]])


def read_object(raw: bytes | msgspec.Raw, shape: type[T], reject: Reject) -> T | None:
    """Return an object with what is readable of it; None = it is refused, and `reject` has why."""
    try:
        item = msgspec.json.decode(raw, type=shape)
    except (ValueError, RecursionError) as error:
        reason = str(error)
    else:
        if item.metadata.name:
            return item
        reason = "it has no name"
    document = load_object(bytes(raw))
    metadata = document.get("metadata")
    faults: list[str] = []
    if isinstance(metadata, dict):
        for key in ("annotations", "labels"):
            if isinstance(marks := metadata.get(key), dict):
                texts = {k: v if isinstance(v, str) else json.dumps(v) for k, v in marks.items()}
                faults += [f"{key}: {k} is no text" for k in marks if texts[k] is not marks[k]]
                metadata[key] = texts
        readable = _convert(document, shape, faults)
        if readable is not None and readable.metadata.name:
            unreadable = "; ".join(faults or [reason])[:LONGEST_FAULT]
            meta = msgspec.structs.replace(readable.metadata, unreadable=unreadable)
            return msgspec.structs.replace(readable, metadata=meta)
    reject(_describe(document, _TABLES.get(shape, "object"), "; ".join(faults) or reason))
    return None


def _refuse_lone(match: re.Match[bytes]) -> bytes:
    return rb"\u0000" if match[1] else match[0]  # no text: the check of texts refuses a NUL


def load_object(raw: bytes) -> dict[str, Any]:
    """Return what Python's lenient parser reads of an object; nothing where it is none."""
    try:
        document = json.loads(
            _SURROGATES.sub(_refuse_lone, prune(raw)).decode("utf-8", "replace"),
            parse_int=lambda text: int(text) if len(text) <= _DIGITS else text,
            parse_constant=lambda _: None,
        )
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}


def _convert(document: Any, shape: type[T], faults: list[str]) -> T | None:
    """Return an object without its unreadable fields, which are added to `faults`."""
    for _ in range(MOST_FAULTS):
        try:
            return msgspec.convert(document, shape)
        except msgspec.ValidationError as error:
            match = _ERROR.search(str(error))
            path = (match and match[2]) or ""
            faults.append(str(error))
            if path in _IDENTITY or not _drop(document, path, match[1] if match else None):
                return None
    return None


def _drop(document: Any, path: str, kind: str | None) -> bool:
    """Remove a field by its path; of a map's values those of the wrong kind, else all."""
    steps = [name or index for name, index in _STEPS.findall(path)]
    for step in steps[:-1]:
        if step == "...":
            break
        try:
            document = document[int(step) if step.isdigit() else step]
        except (KeyError, IndexError, TypeError):
            return False
    last = steps[-1]
    if isinstance(document, dict) and "..." in steps:
        wrong = [k for k, v in document.items() if _TYPES.get(type(v), type(v).__name__) == kind]
        for key in wrong or list(document):
            del document[key]
        return bool(document) or bool(wrong) or len(steps) > 1
    if isinstance(document, list) and last.isdigit() and int(last) < len(document):
        del document[int(last)]
        return True
    return isinstance(document, dict) and document.pop(last, document) is not document


def _describe(document: Any, table: str, reason: str) -> Rejection:
    def find(*path: str) -> str:
        value = document
        for step in path:
            value = value.get(step) if isinstance(value, dict) else None
        return value if isinstance(value, str) else ""

    namespace, name, uid = (find("metadata", part) for part in ("namespace", "name", "uid"))
    node = find("spec", "nodeName")
    return Rejection(table, namespace, name, "", reason, uid=uid, node=node)
