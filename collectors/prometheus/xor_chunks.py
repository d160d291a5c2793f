"""Decode Prometheus's XOR chunks into arrays: a step per place in a chunk, for all chunks at once.

A chunk is the count of its samples (2 bytes) and a stream of bits. Its first sample is a timestamp
(a signed varint, ms) and the 64 bits of its value; its second one is the time since the first (a
varint) and a change of value; each further one is

    time   0 | 10 + 14 bits | 110 + 17 | 1110 + 20 | 1111 + 64    how the time step has changed
    value  0                                                      as before
           10 + the bits that have changed, in the place of the last such bits
           11 + leading zeros (5 bits) + count (6 bits, 0 is 64) + the bits that have changed

Numbers are unsigned and wrap, as those of the server do.
"""

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]

_ZERO, _UNIT, _WORD = np.uint64(0), np.uint64(1), np.uint64(64)
_PREFIX = np.array([1] * 8 + [2] * 4 + [3] * 2 + [4] * 2, np.uint64)
_WIDTH = np.array([0] * 8 + [14] * 4 + [17] * 2 + [20, 64], np.uint64)
"""Bits before a change of the time step, and its own bits, by the first four bits."""
_CONTROL = np.array([1, 1, 2, 13], np.uint64)
"""Bits before the bits of a value that have changed, by the first two bits."""
_HEADER = 2
_LONGEST_VARINT = 10
_PADDING = 24


class ChunkError(ValueError):
    """A chunk has another form than expected."""


class _Bits:
    """Reads from many places of the same bytes at once."""

    def __init__(self, data: bytes) -> None:
        padded = data + bytes(_PADDING - len(data) % 8)
        self._octets = np.frombuffer(padded, np.uint8)
        self._words = np.frombuffer(padded, ">u8").astype(np.uint64)

    def read_counts(self, starts: Ints) -> Ints:
        """Return the numbers of two bytes at some bytes."""
        high, low = self._octets[starts], self._octets[starts + 1]
        return high.astype(np.int64) << 8 | low

    def read_words(self, places: Words) -> Words:
        """Return the 64 bits from some bits on; what lies behind the end has no meaning."""
        number = (places >> np.uint64(6)).view(np.int64)
        shift = places & np.uint64(63)
        first: Words = self._words.take(number, mode="clip") << shift
        rest = self._words.take(number + 1, mode="clip") >> _UNIT
        words: Words = first | rest >> (shift ^ np.uint64(63))
        return words

    def read_varints(self, places: Words) -> tuple[Words, Words]:
        """Return the varints from some bits on, which begin bytes, and the bits behind them."""
        at = (places >> np.uint64(3)).view(np.int64)
        numbers = np.zeros(len(at), np.uint64)
        goes_on = np.ones(len(at), np.bool_)
        for place in range(_LONGEST_VARINT):
            octets = self._octets.take(at, mode="clip").astype(np.uint64)
            part = (octets & np.uint64(0x7F)) << np.uint64(7 * place)
            numbers |= np.where(goes_on, part, _ZERO)
            at = at + goes_on
            goes_on &= octets > np.uint64(0x7F)
            if not goes_on.any():
                return numbers, at.view(np.uint64) << np.uint64(3)
        raise ChunkError("a number does not end")


class _Samples:
    """The last sample read of each chunk; chunks with more samples come first."""

    def __init__(self, bits: _Bits, starts: Ints) -> None:
        first = (starts + _HEADER).view(np.uint64) << np.uint64(3)
        number, self.place = bits.read_varints(first)
        self.ts = number >> _UNIT ^ (_ZERO - (number & _UNIT))
        self.value = bits.read_words(self.place)
        self.place = self.place + _WORD
        self._bits = bits
        self._step = self._zeros = self._width = np.zeros(len(starts), np.uint64)

    def keep(self, count: int) -> None:
        """Keep the first chunks only: the others have no more samples."""
        self.place, self.ts, self.value = self.place[:count], self.ts[:count], self.value[:count]
        self._step, self._zeros = self._step[:count], self._zeros[:count]
        self._width = self._width[:count]

    def read_second(self) -> None:
        """Read the second sample of each chunk."""
        self._step, self.place = self._bits.read_varints(self.place)
        self.ts = self.ts + self._step
        self._change_value(self._bits.read_words(self.place))

    def read_next(self) -> None:
        """Read a further sample of each chunk."""
        word = self._bits.read_words(self.place)
        kind = (word >> np.uint64(60)).view(np.int64)
        if int(kind.max()) < 8:  # noqa: PLR2004  (no time step has changed)
            self.place = self.place + _UNIT
            word = word << _UNIT
        else:
            word = self._change_step(word, kind)
        self.ts = self.ts + self._step
        self._change_value(word)

    def _change_step(self, word: Words, kind: Ints) -> Words:
        """Add the changes of time steps; return the 64 bits behind them."""
        prefix, width = _PREFIX.take(kind), _WIDTH.take(kind)
        some = width > _ZERO
        change = np.where(some, word << prefix >> (_WORD - np.maximum(width, _UNIT)), _ZERO)
        half = _UNIT << (np.maximum(width, _UNIT) - _UNIT)
        long = width == _WORD
        change = np.where(some & ~long & (change > half), change - (half << _UNIT), change)
        self.place = self.place + prefix
        if long.any():
            change[long] = self._bits.read_words(self.place[long])
        self._step = self._step + change
        self.place = self.place + width
        if long.any():
            return self._bits.read_words(self.place)
        return word << (prefix + width)

    def _change_value(self, word: Words) -> None:
        """Change the values as the bits say, which begin with the control bits."""
        control = word >> np.uint64(62)
        if not (control > _UNIT).any():
            self.place = self.place + _UNIT
            return
        is_new = control == np.uint64(3)
        self._zeros = np.where(is_new, word >> np.uint64(57) & np.uint64(31), self._zeros)
        width = word >> np.uint64(51) & np.uint64(63)
        width = np.where(width == _ZERO, _WORD, width)
        self._width = np.where(is_new, width, self._width)
        self.place = self.place + _CONTROL.take(control.view(np.int64))
        changed = self._bits.read_words(self.place) >> (_WORD - self._width & np.uint64(63))
        is_changed = control > _UNIT
        changed = changed << (_WORD - self._zeros - self._width & np.uint64(63))
        self.value = self.value ^ np.where(is_changed, changed, _ZERO)
        self.place = self.place + np.where(is_changed, self._width, _ZERO)


def decode_chunks(data: bytes, starts: Ints, ends: Ints, *, most: int) -> tuple[Ints, Ints, Words]:
    """Return how many samples each chunk has; all timestamps (ms); the bits of all values.

    Chunk n is `data[starts[n]:ends[n]]`.

    Raises:
        ChunkError: a chunk has another form, or all have more than `most` samples.
    """
    bits = _Bits(data)
    if (ends - starts < _HEADER).any():
        raise ChunkError("a chunk has no samples")
    lengths = bits.read_counts(starts)
    if (lengths == 0).any():
        raise ChunkError("a chunk has no samples")
    total = int(lengths.sum())
    if total > most:
        raise ChunkError(f"there are more than {most:,} samples")
    ts, values = np.empty(total, np.uint64), np.empty(total, np.uint64)
    order = np.argsort(-lengths, kind="stable")
    at = (np.cumsum(lengths) - lengths)[order]
    lasts = ends[order]
    counts = _count_longer(lengths)
    samples = _Samples(bits, starts[order])
    for number, count in enumerate(counts):
        if count < len(at):
            _check_ends(samples.place[count:], lasts[count:])
            samples.keep(count)
            at, lasts = at[:count], lasts[:count]
        if number == 1:
            samples.read_second()
        elif number:
            samples.read_next()
        ts[at], values[at] = samples.ts, samples.value
        at = at + 1
    _check_ends(samples.place, lasts)
    return lengths, ts.view(np.int64), values


def _count_longer(lengths: Ints) -> list[int]:
    """Return for each place how many chunks have a sample there."""
    if not len(lengths):
        return []
    by_length = np.bincount(lengths)
    counts: list[int] = (len(lengths) - np.cumsum(by_length)[:-1]).tolist()
    return counts


def _check_ends(places: Words, ends: Ints) -> None:
    """Refuse chunks whose last sample does not end in their last byte, or in the one before.

    A server that has filled a byte may begin an empty one.
    """
    left = ends - (places + np.uint64(7) >> np.uint64(3)).view(np.int64)
    if ((left < 0) | (left > 1)).any():
        raise ChunkError("a chunk does not end with its last sample")
