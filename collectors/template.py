"""Read the same targets again and again: only what stands after each line's labels is parsed.

The first look at a target goes through `collectors.exposition` and leaves a template: how many
lines it has and, per sample line, the text before its value. The next look splits the body,
takes those prefixes away and casts what is left, for the whole fleet in one Arrow cast. If
anything but a value has changed, so has the body's length less its values': that target, and no
other, is learned again.
"""

from collections.abc import Mapping
from operator import itemgetter
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from collectors.assemble import Assembled, Catalog, Coded
from collectors.exposition import Line, Text, parse_labels, parse_tail, read
from collectors.frame import Floats, Ints
from collectors.series import Identity, Series, combine, identify, measure_of

_MICROS_FROM_MILLIS = 1000
_SLACK = 20_000  # identities that may be remembered beyond twice the living ones


class Look(msgspec.Struct):
    """What one target's body held."""

    target: str
    values: int = 0
    """Values of metrics that Fallow knows, refused ones included."""
    refused: int = 0
    """Of these: blank, not finite, or outside their range."""
    rejected: int = 0
    """The refused and the lines that are not Prometheus text."""
    unknown: int = 0
    cut: bool = False


class Reading(msgspec.Struct, frozen=True):
    """All targets' rows, and a look per target in the order they were fed."""

    assembled: Assembled
    looks: list[Look]


class _Template(msgspec.Struct, frozen=True):
    lines: int
    pick: Any
    prefixes: tuple[bytes, ...]
    fixed: int
    """Bytes of a body that are not values."""
    stamped: bool
    known: Ints
    coded: Coded
    unknown: int


class _Chunk(msgspec.Struct, frozen=True):
    """One target's values: as text still to be cast, or as numbers."""

    coded: Coded
    text: bytes = b""
    known: Ints | None = None
    lines: int = 0
    stamped: bool = False
    values: Floats | None = None
    stamps: Ints | None = None


class Reader:
    """Turns bodies of many targets into rows; remembers each target's template."""

    def __init__(self) -> None:
        self._catalog = Catalog()
        self._templates: dict[str, _Template] = {}
        self._chunks: list[_Chunk] = []
        self._looks: list[Look] = []

    def feed(
        self,
        target: str,
        body: bytes,
        labels: Mapping[str, str] | None = None,
        *,
        whole: bool = False,
    ) -> Look:
        """Take one target's body. `labels` are the target's own, such as `instance`."""
        look = Look(target)
        template = self._templates.get(target)
        chunk = None if template is None else _match(template, body)
        if template is None or chunk is None:
            chunk = self._learn(target, read(body, whole=whole), body, labels or {}, look)
        else:
            look.unknown = template.unknown
        self._chunks.append(chunk)
        self._looks.append(look)
        return look

    def finish(self, ts: np.datetime64, *, cluster: str, interval_s: float, source: str) -> Reading:
        """Return the rows of everything fed since the last time.

        `ts` is the moment of lines that carry no timestamp of their own.
        """
        chunks, looks = self._chunks, self._looks
        self._chunks, self._looks = [], []
        values, stamps = _numbers(chunks)
        moment = np.where(stamps < 0, ts.astype("datetime64[us]"), stamps.astype("datetime64[us]"))
        coded = Coded.joined([c.coded for c in chunks])
        assembled = self._catalog.assemble(
            coded, moment, values, cluster=cluster, interval_s=interval_s, source=source
        )
        sizes = np.array([len(c.coded) for c in chunks], np.int64)
        owner = np.repeat(np.arange(len(chunks)), sizes)
        refused = np.bincount(owner[assembled.refused], minlength=len(chunks))
        for look, size, bad in zip(looks, sizes.tolist(), refused.tolist(), strict=True):
            look.values += size
            look.refused += bad
            look.rejected += bad
        if len(self._catalog) > 2 * len(np.unique(coded.identity)) + _SLACK:
            # Pods come and go; their label sets are not kept for ever.
            self._catalog, self._templates = Catalog(), {}
        return Reading(assembled, looks)

    def forget(self, target: str) -> None:
        """Drop what was learned about a target."""
        self._templates.pop(target, None)

    def _learn(
        self, target: str, text: Text, body: bytes, labels: Mapping[str, str], look: Look
    ) -> _Chunk:
        known, series = meanings(text.lines, labels)
        coded = self._catalog.code(series)
        place = np.array(known, np.int64)
        look.rejected += text.rejected
        look.cut = text.cut
        look.unknown = len(text.lines) - len(known)
        values = np.array([line.value for line in text.lines], np.float64)[place]
        stamps = np.array(
            [-1 if line.timestamp_us is None else line.timestamp_us for line in text.lines],
            np.int64,
        )[place]
        template = _template(text, body, place, coded)
        if template is None:
            self._templates.pop(target, None)
        else:
            self._templates[target] = template
        return _Chunk(coded, values=values, stamps=stamps)


def meanings(lines: list[Line], labels: Mapping[str, str]) -> tuple[list[int], list[Series]]:
    """Return which lines mean something to Fallow, and what."""
    known: list[int] = []
    series: list[Series] = []
    seen: dict[bytes, tuple[dict[str, str], Identity | None]] = {}
    for place, line in enumerate(lines):
        measure = measure_of(line.name)
        if measure is None:
            continue
        if line.labels not in seen:
            own = {**labels, **parse_labels(line.labels)}
            seen[line.labels] = own, identify(own)
        own, identity = seen[line.labels]
        meaning = None if identity is None else combine(measure, identity, own)
        if meaning is not None:
            known.append(place)
            series.append(meaning)
    return known, series


def _template(text: Text, body: bytes, known: Ints, coded: Coded) -> _Template | None:
    """Return a template, or None where lines are not all of one plain kind."""
    lines = text.lines
    stamped = {line.timestamp_us is not None for line in lines}
    plain = all(line.plain for line in lines)
    if text.rejected or not plain or len(stamped) != 1 or not len(known):
        return None
    pieces = body.split(b"\n")
    prefixes = tuple(pieces[line.number][: line.start] for line in lines)
    # itemgetter of one index returns the item itself, not a tuple of one.
    pick = itemgetter(*(line.number for line in lines), len(pieces) - 1)
    tails = b"\n".join(map(bytes.removeprefix, pick(pieces), (*prefixes, b"")))
    return _Template(
        text.total,
        pick,
        (*prefixes, b""),
        len(body) - len(tails),
        stamped == {True},
        known,
        coded,
        len(lines) - len(known),
    )


def _match(template: _Template, body: bytes) -> _Chunk | None:
    pieces = body.split(b"\n")
    if len(pieces) != template.lines:
        return None
    tails = b"\n".join(map(bytes.removeprefix, template.pick(pieces), template.prefixes))
    if len(body) - len(tails) != template.fixed:
        return None
    return _Chunk(
        template.coded,
        text=tails,
        known=template.known,
        lines=len(template.prefixes) - 1,
        stamped=template.stamped,
    )


def _numbers(chunks: list[_Chunk]) -> tuple[Floats, Ints]:
    """Return all chunks' known values and timestamps (microseconds, -1 = none), in order."""
    texts = [c for c in chunks if c.values is None]
    parsed = iter(_cast(texts))
    values: list[Floats] = []
    stamps: list[Ints] = []
    for chunk in chunks:
        if chunk.values is not None and chunk.stamps is not None:
            values.append(chunk.values)
            stamps.append(chunk.stamps)
        else:
            value, stamp = next(parsed)
            values.append(value)
            stamps.append(stamp)
    if not values:
        return np.zeros(0), np.zeros(0, np.int64)
    return np.concatenate(values), np.concatenate(stamps)


def _cast(chunks: list[_Chunk]) -> list[tuple[Floats, Ints]]:
    """Cast the texts of several chunks at once; one by one where a value is no number."""
    if not chunks:
        return []
    try:
        every = _floats(b"".join(c.text for c in chunks), stamped=any(c.stamped for c in chunks))
    except pa.ArrowInvalid:
        if len(chunks) == 1:
            return [_patiently(chunks[0])]
        return [part for chunk in chunks for part in _cast([chunk])]
    found: list[tuple[Floats, Ints]] = []
    start = 0
    for chunk in chunks:
        width = 2 if chunk.stamped else 1
        mine = every[start : start + width * chunk.lines]
        start += width * chunk.lines
        value = mine[::width][chunk.known]
        stamp = np.full(len(value), -1, np.int64)
        if chunk.stamped:
            stamp = (mine[1::2][chunk.known] * _MICROS_FROM_MILLIS).astype(np.int64)
        found.append((value, stamp))
    return found


def _floats(text: bytes, *, stamped: bool) -> Floats:
    """Parse numbers that end in newlines (and spaces, between a value and its timestamp)."""
    data = np.frombuffer(text, np.uint8)
    ends = np.flatnonzero((data == 10) | (data == 32) if stamped else data == 10)  # noqa: PLR2004
    # Each text and the separator after it are two strings; every second one is taken.
    offsets = np.zeros(2 * len(ends) + 1, np.int32)
    offsets[1::2] = ends
    offsets[2::2] = ends + 1
    pairs = pa.Array.from_buffers(
        pa.string(), 2 * len(ends), [None, pa.py_buffer(offsets), pa.py_buffer(text)]
    )
    numbers = pairs.take(pa.array(np.arange(0, 2 * len(ends), 2))).cast(pa.float64())
    return np.asarray(numbers.to_numpy(zero_copy_only=False), np.float64)


def _patiently(chunk: _Chunk) -> tuple[Floats, Ints]:
    """Parse one chunk's tails with the full grammar; what is no number is NaN, so refused."""
    lines = [parse_tail(tail) for tail in chunk.text.split(b"\n")[: chunk.lines]]
    values = np.array([np.nan if line is None else line[0] for line in lines], np.float64)
    stamps = np.array(
        [-1 if line is None or line[1] is None else line[1] for line in lines], np.int64
    )
    return values[chunk.known], stamps[chunk.known]
