"""Cast values that are still text, for the whole fleet in one step."""

from collections.abc import Sequence

import msgspec
import numpy as np
import pyarrow as pa

from collectors.exposition import LAST, SECONDS_BELOW, parse_tail
from collectors.series_codes import CodedSeries, Floats, Ints

_NEWLINE, _SPACE = 10, 32


class TailChunk(msgspec.Struct, frozen=True):
    """One target's values: as text still to be cast, or as numbers."""

    coded: CodedSeries
    text: bytes = b""
    """One value per line, after a space; or value, space and timestamp."""
    lines_read: Ints = msgspec.field(default_factory=lambda: np.zeros(0, np.int64))
    """Which lines Fallow knows: those of `coded`."""
    lines: int = 0
    stamped: bool = False
    values: Floats | None = None
    stamps: Ints | None = None
    """Microseconds, -1 for a line without; None = no line has one."""
    rejected: int = 0
    strange: int = 0
    """Of the rejected: lines of metrics that Fallow does not know."""


def settle(chunks: Sequence[TailChunk]) -> list[TailChunk]:
    """Give every chunk its values: all texts of one kind in one cast."""
    chunks_settled = list(chunks)
    for stamped in (False, True):
        positions = [i for i, c in enumerate(chunks) if c.values is None and c.stamped is stamped]
        values_cast = _cast([chunks[i] for i in positions])
        for place, chunk in zip(positions, values_cast, strict=True):
            chunks_settled[place] = chunk
    return chunks_settled


def _cast(chunks: list[TailChunk]) -> list[TailChunk]:
    """Cast the texts of several chunks at once; one by one where a value is no number."""
    if not chunks:
        return []
    try:
        return _cast_all(chunks)
    except (pa.ArrowInvalid, _OddError):
        if len(chunks) == 1:
            return [_parse_slowly(chunks[0])]
        return [part for chunk in chunks for part in _cast([chunk])]


class _OddError(Exception):
    """The texts are not the numbers that their templates promise."""


def _cast_all(chunks: list[TailChunk]) -> list[TailChunk]:
    width = 1 + chunks[0].stamped
    numbers = _parse_floats(b"".join(c.text for c in chunks), stamped=width > 1)
    if len(numbers) != width * sum(c.lines for c in chunks):
        raise _OddError
    chunks_settled: list[TailChunk] = []
    start = 0
    for chunk in chunks:
        chunk_numbers = numbers[start : start + width * chunk.lines]
        start += width * chunk.lines
        # Most targets export only GPU metrics: then all lines are known, in order.
        reads_every_line = len(chunk.lines_read) == chunk.lines
        values = (
            chunk_numbers[::width] if reads_every_line else chunk_numbers[::width][chunk.lines_read]
        )
        stamps = (
            _parse_microseconds(chunk_numbers[1::2])[chunk.lines_read] if chunk.stamped else None
        )
        chunks_settled.append(TailChunk(chunk.coded, values=values, stamps=stamps))
    return chunks_settled


def _parse_microseconds(stamps: Floats) -> Ints:
    """Return timestamps in microseconds; milliseconds and seconds are distinguished by size."""
    scaled = np.where(np.abs(stamps) < SECONDS_BELOW, stamps * 1e6, stamps * 1e3)
    if not ((scaled >= 0) & (scaled < LAST)).all():
        raise _OddError
    return np.rint(scaled).astype(np.int64)


def _parse_floats(text: bytes, *, stamped: bool) -> Floats:
    """Parse numbers between the separators of a chunk's text, in order.

    Each number and the separator before it are two strings of one Arrow array over the text
    itself; the separators are marked null, so that nothing is copied.
    """
    data = np.frombuffer(text, np.uint8)
    ends = np.flatnonzero((data == _NEWLINE) | (data == _SPACE) if stamped else data == _NEWLINE)
    offsets = np.zeros(2 * len(ends) + 1, np.int32)
    offsets[2::2] = ends
    offsets[1] = not stamped
    offsets[3::2] = ends[:-1] + (1 if stamped else 2)
    if (np.diff(offsets) < 0).any():
        raise _OddError
    valid = np.full(len(ends) // 4 + 1, 0b10101010, np.uint8)
    pairs = pa.Array.from_buffers(
        pa.string(), 2 * len(ends), [pa.py_buffer(valid), pa.py_buffer(offsets), pa.py_buffer(text)]
    )
    numbers = pairs.cast(pa.float64())
    return np.frombuffer(numbers.buffers()[1], np.float64)[1 : 2 * len(ends) : 2]


def _parse_slowly(chunk: TailChunk) -> TailChunk:
    """Parse one chunk's tails with the full grammar; a line without a value is rejected."""
    tails = [parse_tail(tail) for tail in chunk.text.split(b"\n")[: chunk.lines]]
    valued = np.array([tail is not None for tail in tails], np.bool_)[chunk.lines_read]
    known_tails = [tails[place] for place in chunk.lines_read.tolist()]
    rejected = sum(tail is None for tail in tails)
    pairs = [tail for tail in known_tails if tail is not None]
    return TailChunk(
        chunk.coded.take(np.flatnonzero(valued)),
        values=np.array([value for value, _ in pairs], np.float64),
        stamps=np.array([-1 if stamp is None else stamp for _, stamp in pairs], np.int64),
        rejected=rejected,
        strange=rejected - int((~valued).sum()),
    )
