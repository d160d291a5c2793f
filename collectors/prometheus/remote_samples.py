"""Encode a remote read and decode its answer into arrays, without a Python object per sample.

    ReadRequest   queries=1 (start_timestamp_ms=1, end_timestamp_ms=2,
                             matchers=3 (type=1, name=2, value=3)),
                  accepted_response_types=2
    ReadResponse  results=1 (timeseries=1 (labels=1 (name=1, value=2), samples=2 (value=1, ts=2)))

Between 1971 and 2109 a timestamp in milliseconds has six bytes, so that a sample has 18 bytes, or 9
where its value is 0, which protobuf leaves out. A series' samples are therefore units of nine
bytes, and each unit's first three bytes say what it is:

    12 10 09 + 6 bytes of the value                     the first half of a sample
    the value's last 2 bytes + 10 + the timestamp       its second half
    12 07 10 + the timestamp                            a sample whose value is 0
"""

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from collectors.prometheus.decode import Matrix
from fallow.window import Window

_EQUAL, _REGEX = 0, 2
_STREAMED, _SAMPLED = 1, 0
_ACCEPTED = (_STREAMED, _SAMPLED)
"""A server answers in the first way that it has (`streamed_chunks`); an old one knows the last."""
_UNIT = 9
_STALE = 0x7FF0000000000002
"""The bits of the value that marks the end of a series; a query does not return it."""
_LABELS, _SAMPLES = 0x0A, 0x12
_LONG, _LONGEST_SHIFT = 0x80, 63
_FIRST, _ZERO, _TIME = 0x09_10_12, 0x10_07_12, 0x10
"""The first three bytes of units, the last one highest, and the third byte of a second half."""
_PADDING = bytes(8)
_HIGHEST, _GOES_ON = np.uint64(0x80_80_80_80_80_80), np.uint64(0x80_80_80_80_80)
"""The highest bits of six bytes; of a varint all are set but the last."""


class AnswerError(ValueError):
    """The answer has another form, or other samples, than expected."""


def encode_request(names: Sequence[str], window: Window) -> bytes:
    """Return the request for the samples of some metrics in [start, end), snappy included."""
    start, end = (round(at.timestamp() * 1000) for at in (window.start, window.end))
    matcher = (
        _encode_number(1, _REGEX if len(names) > 1 else _EQUAL)
        + encode_bytes(2, b"__name__")
        + encode_bytes(3, "|".join(names).encode())
    )
    query = _encode_number(1, start) + _encode_number(2, end - 1) + encode_bytes(3, matcher)
    request = encode_bytes(1, query) + b"".join(_encode_number(2, kind) for kind in _ACCEPTED)
    compressed: bytes = pa.compress(request, "snappy", asbytes=True)
    return compressed


def decode_answer(body: bytes, texts: dict[bytes, bytes], *, limit: int) -> Matrix:
    """Decode an answer; `texts` keeps each series' labels as JSON, by their bytes.

    Raises:
        AnswerError: it has another form, or is larger than `limit` bytes.
    """
    try:
        size, _ = read_varint(body, 0)
        if size > limit:
            raise AnswerError(f"the answer is larger than {limit:,} bytes")
        answer = pa.decompress(body, size, "snappy", asbytes=True)
        return _decode_series(answer, texts)
    except (IndexError, pa.ArrowException, UnicodeDecodeError, ValueError) as error:
        raise AnswerError(f"the answer is no remote read: {error}") from error


def _decode_series(answer: bytes, texts: dict[bytes, bytes]) -> Matrix:
    at, end = open_field(answer, 0, _LABELS)  # the result of the only query
    if end != len(answer):
        raise AnswerError("there are several results")
    view = memoryview(answer)
    labels: list[bytes] = []
    sample_parts: list[memoryview] = []
    while at < end:
        at, last = open_field(answer, at, _LABELS)  # a series
        first = at
        while at < last and answer[at] == _LABELS:
            length = answer[at + 1]
            at = at + 2 + length if length < _LONG else open_field(answer, at, _LABELS)[1]
        own = answer[first:at]
        text = texts.get(own)
        if text is None:
            text = texts[own] = convert_labels(own)
        labels.append(text)
        sample_parts.append(view[at:last])
        at = last
    return _decode_samples(labels, sample_parts)


def _decode_samples(labels: list[bytes], parts: Sequence[memoryview]) -> Matrix:
    sizes = np.array([len(part) for part in parts], np.int64)
    if (sizes % _UNIT).any():
        raise AnswerError("there is something else than samples")
    counts, ends = sizes // _UNIT, np.cumsum(sizes // _UNIT)
    units = _Units(b"".join([*parts, _PADDING]), int(sizes.sum()) // _UNIT)
    marks = units.view_numbers(0, "<u4") & 0xFFFFFF
    is_first = marks == _FIRST
    if not is_first.any():
        is_second = is_first
    else:
        is_second = np.zeros(len(marks), np.bool_)
        is_second[1:] = is_first[:-1]
    is_end = ~is_first
    if (
        ((marks != _ZERO) & ~(is_first | is_second)).any()
        or ((marks >> 16 != _TIME) & is_second).any()
        or is_first[ends[counts > 0] - 1].any()
    ):
        raise AnswerError("a sample has another form")
    bits = np.where(is_first, units.view_numbers(3, "<u8"), np.uint64(0))
    # A sample stands where it ends, its value in the unit before.
    bits = np.concatenate([np.zeros(1, np.uint64), bits[:-1]])[is_end]
    ts = _decode_timestamps((units.view_numbers(1, "<u8") >> np.uint64(16))[is_end])
    ended = np.concatenate([[0], np.cumsum(is_end)])
    lengths = ended[ends] - ended[ends - counts]
    return build_matrix(labels, lengths, ts, bits)


def build_matrix(
    labels: list[bytes],
    lengths: npt.NDArray[np.int64],
    ts: npt.NDArray[np.int64],
    bits: npt.NDArray[np.uint64],
    inside: npt.NDArray[np.bool_] | None = None,
) -> Matrix:
    """Return what a query returns: without stale markers and series that have no samples.

    `ts` in ms, `bits` those of the values; `inside`: which samples count (default: all).
    """
    valid = bits != _STALE if inside is None else inside & (bits != _STALE)
    if not valid.all():
        numbers = np.repeat(np.arange(len(lengths)), lengths)
        lengths = np.bincount(numbers[valid], minlength=len(lengths))
        bits, ts = bits[valid], ts[valid]
    some = lengths > 0
    named = labels if some.all() else [labels[n] for n in np.flatnonzero(some)]
    return Matrix(named, lengths[some], (ts * 1000).view("datetime64[us]"), bits.view(np.float64))


class _Units:
    """The bytes of samples as columns of numbers, one of each unit."""

    def __init__(self, data: bytes, count: int) -> None:
        self._data, self._count = data, count

    def view_numbers(self, offset: int, kind: str) -> Any:
        """Return the number that begins at an offset of each unit; it may end in the next unit."""
        return np.ndarray((self._count,), kind, self._data, offset, (_UNIT,))


def _decode_timestamps(packed: Any) -> npt.NDArray[np.int64]:
    """Return the numbers of varints of six bytes."""
    if (packed & _HIGHEST != _GOES_ON).any():
        raise AnswerError("a timestamp has other than six bytes")
    numbers = packed & np.uint64(0x7F)
    for place in range(1, 6):
        numbers |= (packed >> np.uint64(place)) & np.uint64(0x7F << 7 * place)
    return np.asarray(numbers.view(np.int64))


def convert_labels(own: bytes) -> bytes:
    """Return the labels of a series as JSON."""
    label_set, at = {}, 0
    while at < len(own):
        at, end = open_field(own, at, _LABELS)
        words = {_LABELS: "", _SAMPLES: ""}  # the name and the value
        while at < end:
            tag = own[at]
            at, last = open_field(own, at, tag)
            words[tag] = own[at:last].decode()
            at = last
        label_set[words[_LABELS]] = words[_SAMPLES]
    return msgspec.json.encode(label_set)


def open_field(data: bytes, at: int, tag: int) -> tuple[int, int]:
    """Return where the content of a field with a length begins and ends."""
    if data[at] != tag:
        raise AnswerError(f"there is a field {data[at]:#x} and not {tag:#x}")
    length, at = read_varint(data, at + 1)
    if at + length > len(data):
        raise AnswerError("a field is longer than the answer")
    return at, at + length


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    """Return the varint that begins at a byte, and where it ends."""
    number, at, shift = data[at], at + 1, 7
    if number < _LONG:
        return number, at
    number &= 0x7F
    while True:
        byte = data[at]
        number |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < _LONG:
            return number, at
        if shift > _LONGEST_SHIFT:
            raise AnswerError("a number does not end")


def encode_bytes(number: int, content: bytes) -> bytes:
    """Return a field of protobuf that has a length."""
    return bytes([number << 3 | 2]) + _encode_varint(len(content)) + content


def _encode_number(number: int, value: int) -> bytes:
    return bytes([number << 3]) + _encode_varint(value)


def _encode_varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:  # noqa: PLR2004  (seven bits a byte)
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])
