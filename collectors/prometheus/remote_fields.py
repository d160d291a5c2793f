"""The fields of protobuf that a remote read has.

ReadRequest   queries=1 (start_timestamp_ms=1, end_timestamp_ms=2,
matchers=3 (type=1, name=2, value=3)),
accepted_response_types=2
"""

from collections.abc import Sequence

import msgspec
import pyarrow as pa

from fallow.window import Window

_EQUAL, _REGEX = 0, 2
_STREAMED = 1
"""The only kind of answer that we accept: all servers since 2019 have it."""
_LABELS, _VALUE = 0x0A, 0x12
_LONG, _LONGEST_SHIFT = 0x80, 63


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
    request = encode_bytes(1, query) + _encode_number(2, _STREAMED)
    compressed: bytes = pa.compress(request, "snappy", asbytes=True)
    return compressed


def convert_labels(own: bytes) -> bytes:
    """Return the labels of a series as JSON."""
    label_set, at = {}, 0
    while at < len(own):
        at, end = open_field(own, at, _LABELS)
        words = {_LABELS: "", _VALUE: ""}  # the name and the value
        while at < end:
            tag = own[at]
            at, last = open_field(own, at, tag)
            words[tag] = own[at:last].decode()
            at = last
        label_set[words[_LABELS]] = words[_VALUE]
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
