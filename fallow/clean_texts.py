r"""Check every text that comes from outside before it is stored.

`text_columns.csv` says what each text column is, and how many bytes it may have:

    identity     a name, a uid, a device: printable and whole, or its row is refused
    holder       an identity of who holds a device, or where: else `UNKNOWN`, so that the device
                 stays, paid and held; no pod has such a name
    optional     an identity that its row can do without: else null, which is unknown
    text         free text: control characters become escapes, what is too long is cut and marked
    identities   a JSON document of identities: whole and printable, or null, which is unknown
    texts        a JSON document whose texts are cleaned one by one; its keys are identities
    own          written by Fallow from rows that were clean

Newline and tab stay in free text. `limit`: of a text or of one text in a document of texts; of the
whole document of identities (Kubernetes: 253 bytes a name, 317 a label's key, 256 KiB all
annotations of an object). Nobody needs a longer or another one, so what is refused was damaged or
written to do damage: each is a row of the table `rejection`.
"""

from collections.abc import Iterable, Iterator
from datetime import datetime
from functools import cache
from typing import Any, Literal

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from fallow.rejections import MOST_LISTED, NOT_LISTED, Rejection, build_batch
from fallow.resources import read_table
from fallow.tables import Batch, list_columns
from fallow.texts import escape_text

LONGEST_KEY = 317
"""Bytes of an identity in a document: a label's prefix, a slash and its name."""
_PLAIN = (0x20, 0x7E)
_CONTROL = r"\x00-\x1f\x7f-\x{9f}"
_SUSPICIOUS = {
    "identity": f"[{_CONTROL}]",
    "holder": f"[{_CONTROL}]",
    "optional": f"[{_CONTROL}]",
    "text": r"[\x00-\x08\x0b-\x1f\x7f-\x{9f}]",
    "identities": rf'[{_CONTROL}\\]|[^"]{{{LONGEST_KEY + 1}}}',
    "texts": rf'[{_CONTROL}]|\\[ubfr]|[^"]{{{LONGEST_KEY + 1}}}',
}
"""What an unclean text matches. In JSON a control character is an escape, and few documents have
a long text: those that match are read whole."""
_REASONS = {
    "identity": "a control character, or over {:,} bytes: the row is refused",
    "holder": "a control character, or over {:,} bytes: what it names is unknown",
    "optional": "a control character, or over {:,} bytes: unknown",
    "text": "a control character, or over {:,} bytes: escaped and cut",
    "identities": "no JSON, a control character, over 317 bytes, or over {:,} in all: unknown",
    "texts": "no JSON, a control character, or a text over {:,} bytes: escaped and cut",
}
_NAMES = ("name", "device", "pod", "node", "target", "address", "source")
_DOCUMENT = msgspec.json.Decoder(msgspec.Raw)
"""Checks a document and builds nothing of it."""
UNKNOWN = "(unknown)"
"""Who holds a device, or where it is, by a name that was refused."""
_ALSO = ("namespace", "uid", "node", "workload_kind", "workload")


class TextColumn(msgspec.Struct, frozen=True):
    """What the texts of a column are, and how many bytes one may have."""

    name: str
    content: Literal["identity", "holder", "optional", "text", "identities", "texts", "own"]
    limit: int

    @property
    def is_document(self) -> bool:
        """Return whether the texts are JSON."""
        return self.content in {"identities", "texts"}


@cache
def list_text_columns(table: str) -> tuple[TextColumn, ...]:
    """Return a table's text columns that are checked.

    Raises:
        KeyError: `text_columns.csv` does not name a column.
    """
    rows = {(row["table"], row["column"]): row for row in read_table("fallow", "text_columns.csv")}
    names = [column.name for column in list_columns(table) if column.type == "string"]
    rules = [rows.get((table, name)) or rows["", name] for name in names]
    columns = (TextColumn(r["column"], r["content"], int(r["limit"])) for r in rules)  # type: ignore[arg-type]  # a test holds the file to these
    return tuple(column for column in columns if column.content != "own")


def check_batches(
    batches: Iterable[Batch], *, cluster: str, source: str, at: datetime
) -> Iterator[Batch]:
    """Yield batches whose texts are clean, each before a batch of what was refused or cleaned.

    `source`: who read them. Batches that were checked pass as they are.
    """
    for batch in batches:
        if batch.texts_checked:
            yield batch
            continue
        rows, rejections = clean_rows(batch.table, batch.rows)
        yield msgspec.structs.replace(batch, rows=rows, texts_checked=True)
        if rejections:
            yield build_batch(rejections, cluster=cluster, source=source, at=at)


def clean_rows(
    table: str, rows: pa.Table, *, keeps_all: bool = False
) -> tuple[pa.Table, list[Rejection]]:
    """Return a table's rows that may be stored, clean, and what was refused or cleaned.

    `keeps_all`: an unclean identity is escaped, not refused: a figure of its hours stays.
    """
    rejections: list[Rejection] = []
    refused: pa.ChunkedArray | None = None
    for column in list_text_columns(table):
        texts = rows.column(column.name)
        mask = _find_unclean(texts, column)
        if mask is None:
            continue
        if column.content == "identity" and not keeps_all:
            rejections += _describe(table, rows, column, mask)
            refused = mask if refused is None else pc.or_(refused, mask)
            continue
        cleaned = _clean_column(texts, mask, column)
        changed = pc.fill_null(pc.not_equal(texts, cleaned), fill_value=True)
        mask = pc.and_(mask, changed)  # a document that matches may be clean
        rejections += _describe(table, rows, column, mask)
        place = rows.schema.get_field_index(column.name)
        rows = rows.set_column(place, rows.schema.field(place), cleaned)
    if refused is not None:
        rows = rows.filter(pc.invert(refused))
    return rows, rejections


def build_unclean_condition(table: str) -> str:
    """Return an SQL condition for the rows of a table that may be unclean; it has no such text."""
    return " OR ".join(
        f'strlen("{column.name}") > {column.limit} OR'
        f" regexp_matches(\"{column.name}\", '{_SUSPICIOUS[column.content]}')"
        + f' OR NOT json_valid("{column.name}")'
        * column.is_document
        for column in list_text_columns(table)
    )


def _find_unclean(texts: pa.ChunkedArray, column: TextColumn) -> pa.ChunkedArray | None:
    """Return which rows may be unclean, without nulls; None = no row is."""
    is_short = (pc.max(pc.binary_length(texts)).as_py() or 0) <= column.limit
    if is_short and not column.is_document and all(map(_is_plain, texts.chunks)):
        return None
    mask = pc.match_substring_regex(texts, _SUSPICIOUS[column.content])
    if column.is_document and (broken := _list_broken(texts)):
        mask = pc.or_(mask, pc.is_in(texts, value_set=pa.array(broken, pa.string())))
    if not is_short:
        mask = pc.or_(mask, pc.greater(pc.binary_length(texts), column.limit))
    mask = pc.fill_null(mask, fill_value=False)
    return mask if pc.any(mask).as_py() else None


def _list_broken(texts: pa.ChunkedArray) -> list[str]:
    """Return the different documents that are no JSON: the engine ends at the first one."""
    return [t for t in pc.unique(texts).to_pylist() if t is not None and not _is_json(t)]


def _is_json(text: str) -> bool:
    try:
        _DOCUMENT.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return False
    return True


def _is_plain(texts: pa.StringArray) -> bool:
    """Return whether all bytes are printable ASCII: one pass over the bytes, not over the rows."""
    _, offsets, data = texts.buffers()
    if not len(texts) or data is None:
        return True
    ends = pa.Array.from_buffers(pa.int32(), texts.offset + len(texts) + 1, [None, offsets])
    first, last = ends[texts.offset].as_py(), ends[-1].as_py()
    if first == last:
        return True
    data_bytes = pa.Array.from_buffers(pa.uint8(), last - first, [None, data], offset=first)
    bounds = pc.min_max(data_bytes).as_py()
    return bool(bounds["min"] >= _PLAIN[0] and bounds["max"] <= _PLAIN[1])


def _clean_column(
    texts: pa.ChunkedArray, mask: pa.ChunkedArray, column: TextColumn
) -> pa.ChunkedArray:
    """Return the column with each different unclean text cleaned once."""
    distinct = pc.unique(texts.filter(mask))
    cleaned = [_clean(text, column) for text in distinct.to_pylist()]
    replaced = pa.array(cleaned, pa.string()).take(pc.index_in(texts, distinct))
    return pc.if_else(mask, replaced, texts)


def _clean(text: str, column: TextColumn) -> str | None:
    """Return an unclean text as it may be stored; null = it is refused."""
    if column.content in {"holder", "optional"}:
        return UNKNOWN if column.content == "holder" else None
    if not column.is_document:
        return escape_text(text, column.limit, in_lines=column.content == "text")
    try:
        document = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return None
    if column.content == "identities":
        is_whole = len(text.encode()) <= column.limit and _has_clean_texts(document)
        return text if is_whole else None
    cleaned = _clean_tree(document, column.limit)
    return text if cleaned == document else msgspec.json.encode(cleaned, order="sorted").decode()


def _is_identity(text: str) -> bool:
    return escape_text(text, LONGEST_KEY) == text


def _has_clean_texts(value: Any) -> bool:
    if isinstance(value, str):
        return _is_identity(value)
    if isinstance(value, dict):
        return all(map(_is_identity, value)) and all(map(_has_clean_texts, value.values()))
    return not isinstance(value, list) or all(map(_has_clean_texts, value))


def _clean_tree(value: Any, limit: int) -> Any:
    """Return a document with clean texts, without the entries whose key is no identity."""
    if isinstance(value, str):
        return escape_text(value, limit, in_lines=True)
    if isinstance(value, dict):
        return {k: _clean_tree(part, limit) for k, part in value.items() if _is_identity(k)}
    return [_clean_tree(part, limit) for part in value] if isinstance(value, list) else value


def _describe(
    table: str, rows: pa.Table, column: TextColumn, mask: pa.ChunkedArray
) -> Iterator[Rejection]:
    """Yield a rejection for each different object among the rows of a mask."""
    names = [n for n in dict.fromkeys((*_NAMES, *_ALSO)) if n in rows.column_names]
    unclean = rows.select(names).filter(mask)
    count = unclean.num_rows
    groups = unclean.group_by(names).aggregate([([], "count_all")]).slice(0, MOST_LISTED)
    reason = _REASONS[column.content].format(column.limit)
    for row in groups.to_pylist():
        object_count = row.pop("count_all")
        count -= object_count
        values: dict[str, Any] = {key: row.get(key) or "" for key in _ALSO}
        name = next((row[key] for key in _NAMES if row.get(key)), "")
        yield Rejection(
            table, name=name, field=column.name, reason=reason, count=object_count, **values
        )
    if count:
        yield Rejection(table, "", "", "", NOT_LISTED, count=count)
