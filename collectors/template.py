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
import numpy.typing as npt
import pyarrow as pa

from collectors.assemble import Assembled, Catalog, Coded
from collectors.exposition import (
    LAST,
    SECONDS_BELOW,
    Line,
    Text,
    parse_labels,
    parse_tail,
    read,
)
from collectors.frame import Floats, Ints
from collectors.series import Identity, Series, combine, identify, measure_of

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
    others: Any
    said: bytes
    """The lines that are no samples, joined."""
    fixed: int
    """Bytes of a body that are not values."""
    stamped: bool
    returns: bool
    """Lines end in carriage return and newline."""
    known: Ints
    coded: Coded
    unknown: int


class _Chunk(msgspec.Struct, frozen=True):
    """One target's values: as text still to be cast, or as numbers."""

    coded: Coded
    text: bytes = b""
    known: Ints = msgspec.field(default_factory=lambda: np.zeros(0, np.int64))
    lines: int = 0
    stamped: bool = False
    values: Floats | None = None
    stamps: Ints | None = None
    """Microseconds, -1 for a line without; None = no line has one."""
    rejected: int = 0
    strange: int = 0
    """Of the rejected: lines of metrics that mean nothing to Fallow."""


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
        self.settle()
        chunks, looks = self._chunks, self._looks
        self._chunks, self._looks = [], []
        values = _joined([c.values for c in chunks if c.values is not None])
        moment = _moments(chunks, len(values), ts.astype("datetime64[us]"))
        coded = Coded.joined([c.coded for c in chunks])
        assembled = self._catalog.assemble(
            coded, moment, values, cluster=cluster, interval_s=interval_s, source=source
        )
        sizes = np.array([len(c.coded) for c in chunks], np.int64)
        owner = np.repeat(np.arange(len(chunks)), sizes)
        refused = np.bincount(owner[assembled.refused], minlength=len(chunks))
        for look, chunk, bad in zip(looks, chunks, refused.tolist(), strict=True):
            look.values = len(chunk.coded)
            look.refused = bad
            look.rejected += bad + chunk.rejected
            look.unknown -= chunk.strange
        if len(self._catalog) > 2 * len(np.unique(coded.identity)) + _SLACK:
            # Pods come and go; their label sets are not kept for ever.
            self._catalog, self._templates = Catalog(), {}
        return Reading(assembled, looks)

    def settle(self) -> None:
        """Cast the values of everything fed so far; `finish` does so by itself."""
        self._chunks = _settle(self._chunks)

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
    returns = b"\r\n" in body
    pieces = _pieces(body, returns=returns)
    prefixes = (*(pieces[line.number][: line.start] for line in lines), b"")
    # The last piece is empty; with it every value ends in a newline once joined, and
    # itemgetter never has one index only, for which it returns no tuple.
    pick = itemgetter(*(line.number for line in lines), len(pieces) - 1)
    taken = {line.number for line in lines}
    others = itemgetter(*(n for n in range(len(pieces)) if n not in taken), -1)
    tails = b"\n".join(map(bytes.removeprefix, pick(pieces), prefixes))
    return _Template(
        lines=text.total,
        pick=pick,
        prefixes=prefixes,
        others=others,
        said=b"\n".join(others(pieces)),
        fixed=len(body) - len(tails),
        stamped=stamped == {True},
        returns=returns,
        known=known,
        coded=coded,
        unknown=len(lines) - len(known),
    )


def _pieces(body: bytes, *, returns: bool) -> list[bytes]:
    return body.replace(b"\r\n", b"\n").split(b"\n") if returns else body.split(b"\n")


def _match(template: _Template, body: bytes) -> _Chunk | None:
    pieces = _pieces(body, returns=template.returns)
    if len(pieces) != template.lines:
        return None
    tails = b"\n".join(map(bytes.removeprefix, template.pick(pieces), template.prefixes))
    if len(body) - len(tails) != template.fixed:
        return None
    if b"\n".join(template.others(pieces)) != template.said:
        return None
    lines = len(template.prefixes) - 1
    return _Chunk(template.coded, tails, template.known, lines, template.stamped)


def _joined(parts: list[Floats]) -> Floats:
    return np.concatenate(parts) if parts else np.zeros(0)


def _moments(chunks: list[_Chunk], size: int, ts: np.datetime64) -> npt.NDArray[np.datetime64]:
    """Return each value's moment: its line's timestamp, else the look's."""
    moments = np.full(size, ts)
    start = 0
    for chunk in chunks:
        end = start + len(chunk.coded)
        if chunk.stamps is not None:
            own = chunk.stamps.astype("datetime64[us]")
            moments[start:end] = np.where(chunk.stamps < 0, ts, own)
        start = end
    return moments


def _settle(chunks: list[_Chunk]) -> list[_Chunk]:
    """Give every chunk its values: those of templates in one cast for all."""
    texts = [c for c in chunks if c.values is None]
    cast = iter(_cast(texts))
    return [next(cast) if c.values is None else c for c in chunks]


def _cast(chunks: list[_Chunk]) -> list[_Chunk]:
    """Cast the texts of several chunks at once; one by one where a value is no number."""
    if not chunks:
        return []
    try:
        return _cast_all(chunks)
    except (pa.ArrowInvalid, _OddError):
        if len(chunks) == 1:
            return [_patiently(chunks[0])]
        return [part for chunk in chunks for part in _cast([chunk])]


class _OddError(Exception):
    """The texts are not the numbers that their templates promise."""


def _cast_all(chunks: list[_Chunk]) -> list[_Chunk]:
    numbers = _floats(b"".join(c.text for c in chunks), stamped=any(c.stamped for c in chunks))
    if len(numbers) != sum(c.lines * (1 + c.stamped) for c in chunks):
        raise _OddError
    settled: list[_Chunk] = []
    start = 0
    for chunk in chunks:
        width = 1 + chunk.stamped
        mine = numbers[start : start + width * chunk.lines]
        start += width * chunk.lines
        # Most targets print nothing but GPU metrics: then all lines are known, in order.
        every = len(chunk.known) == chunk.lines
        values = mine[::width] if every else mine[::width][chunk.known]
        stamps = _microseconds(mine[1::2])[chunk.known] if chunk.stamped else None
        settled.append(_Chunk(chunk.coded, values=values, stamps=stamps))
    return settled


def _microseconds(stamps: Floats) -> Ints:
    """Return timestamps in microseconds, told from milliseconds or seconds by their size."""
    scaled = np.where(np.abs(stamps) < SECONDS_BELOW, stamps * 1e6, stamps * 1e3)
    if not ((scaled >= 0) & (scaled < LAST)).all():
        raise _OddError
    return np.rint(scaled).astype(np.int64)


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


def _patiently(chunk: _Chunk) -> _Chunk:
    """Parse one chunk's tails with the full grammar; a line without a value is refused."""
    tails = [parse_tail(tail) for tail in chunk.text.split(b"\n")[: chunk.lines]]
    valued = np.array([tail is not None for tail in tails], np.bool_)[chunk.known]
    found = [tails[place] for place in chunk.known.tolist()]
    rejected = sum(tail is None for tail in tails)
    pairs = [tail for tail in found if tail is not None]
    return _Chunk(
        chunk.coded.take(np.flatnonzero(valued)),
        values=np.array([value for value, _ in pairs], np.float64),
        stamps=np.array([-1 if stamp is None else stamp for _, stamp in pairs], np.int64),
        rejected=rejected,
        strange=rejected - int((~valued).sum()),
    )
