"""Decode the answer of a remote read that streams a server's own chunks of samples.

    frame                 its length (a varint), a checksum (4 bytes), a ChunkedReadResponse
    ChunkedReadResponse   chunked_series=1 (labels=1, chunks=2 (start=1, end=2, type=3, data=4)),
                          query_index=2

The server copies its chunks and decodes only those that begin before a window or end after it: at
12 hours a question that is a quarter of the CPU time that samples take it. TCP has checked the
bytes; an error that the server adds to an answer that has begun is no frame.
"""

import numpy as np
import numpy.typing as npt

from collectors.prometheus.decode import Matrix
from collectors.prometheus.remote_fields import (
    AnswerError,
    convert_labels,
    open_field,
    read_varint,
)
from collectors.prometheus.xor_chunks import decode_chunks
from fallow.window import Window

_CHECKSUM = 4
_SERIES, _LABELS, _CHUNK, _QUERY = 0x0A, 0x0A, 0x12, 0x10
_LONG = 0x80
_START, _END, _TYPE = 0, 7, 14
"""Where the fields of a chunk lie: between 1971 and 2109 a timestamp in ms has six bytes."""
_STARTS_WITH, _ENDS_WITH, _XOR = 0x08, 0x10, b"\x18\x01\x22"
_SAMPLE_BYTES = 18
_STALE = 0x7FF0000000000002
"""The bits of the value that marks the end of a series; a query does not return it."""


class _Series:
    """The series of an answer, and where their chunks lie in it."""

    def __init__(self, body: bytes, texts: dict[bytes, bytes]) -> None:
        self._body, self._texts = body, texts
        self._last = b""
        self.labels: list[bytes] = []
        self.chunks: list[int] = []
        """How many chunks each series has."""
        self.starts: list[int] = []
        self.ends: list[int] = []

    def read_frames(self) -> None:
        """Read all frames; a series may go on in the next frame."""
        body, at = self._body, 0
        while at < len(body):
            size, at = read_varint(body, at)
            at += _CHECKSUM
            end = at + size
            if end > len(body):
                raise AnswerError("a frame is longer than the answer")
            while at < end and body[at] == _SERIES:
                at, last = open_field(body, at, _SERIES)
                self._read_series(at, last)
                at = last
            if at < end and body[at] == _QUERY:
                _, at = read_varint(body, at + 1)
            if at != end:
                raise AnswerError("a frame has another form")

    def _read_series(self, at: int, end: int) -> None:
        body, first = self._body, at
        while at < end and body[at] == _LABELS:
            length = body[at + 1]
            at = at + 2 + length if length < _LONG else open_field(body, at, _LABELS)[1]
        own = body[first:at]
        before = len(self.starts)
        while at < end:
            at = self._read_chunk(at)
        if at != end:
            raise AnswerError("a series has another form")
        count = len(self.starts) - before
        if own == self._last:
            self.chunks[-1] += count
            return
        text = self._texts.get(own)
        if text is None:
            text = self._texts[own] = convert_labels(own)
        self.labels.append(text)
        self.chunks.append(count)
        self._last = own

    def _read_chunk(self, at: int) -> int:
        """Note where a chunk's data lie; return where the field ends."""
        body = self._body
        if body[at] != _CHUNK:
            raise AnswerError(f"there is a field {body[at]:#x} and no chunk")
        # The longest loop over an answer: a call of `open_field` would double its time.
        length, at = read_varint(body, at + 1)
        end = at + length
        if (
            body[at + _START] != _STARTS_WITH
            or body[at + _END] != _ENDS_WITH
            or body[at + _TYPE : at + _TYPE + len(_XOR)] != _XOR
        ):
            raise AnswerError("a chunk has another form")
        length, at = read_varint(body, at + _TYPE + len(_XOR))
        if at + length != end:
            raise AnswerError("a chunk has another length")
        self.starts.append(at)
        self.ends.append(end)
        return end


def decode_stream(body: bytes, texts: dict[bytes, bytes], window: Window, *, limit: int) -> Matrix:
    """Decode the samples in [start, end); `texts` keeps series' labels as JSON, by their bytes.

    Raises:
        AnswerError: it has another form, or its samples as such are larger than `limit` bytes.
    """
    series = _Series(body, texts)
    try:
        series.read_frames()
        starts, ends = np.array(series.starts, np.int64), np.array(series.ends, np.int64)
        lengths, ts, bits = decode_chunks(body, starts, ends, most=limit // _SAMPLE_BYTES)
    except (IndexError, UnicodeDecodeError, ValueError) as error:
        raise AnswerError(f"the answer is no stream of chunks: {error}") from error
    read = np.concatenate([[0], np.cumsum(lengths)])
    lasts = read[np.cumsum(series.chunks, dtype=np.int64)]
    counts = np.diff(lasts, prepend=0)
    is_later = np.diff(ts) > 0
    is_later[lasts[(lasts > 0) & (lasts < len(ts))] - 1] = True  # of two series
    if not is_later.all():
        raise AnswerError("the samples of a series are not in the order of time")
    first, end = (round(at.timestamp() * 1000) for at in (window.start, window.end))
    return _build_matrix(series.labels, counts, ts, bits, (ts >= first) & (ts < end))


def _build_matrix(
    labels: list[bytes],
    lengths: npt.NDArray[np.int64],
    ts: npt.NDArray[np.int64],
    bits: npt.NDArray[np.uint64],
    inside: npt.NDArray[np.bool_],
) -> Matrix:
    """Return what a query returns: without stale markers and series that have no samples.

    `ts` in ms, `bits` those of the values; `inside`: which samples count.
    """
    valid = inside & (bits != _STALE)
    if not valid.all():
        numbers = np.repeat(np.arange(len(lengths)), lengths)
        lengths = np.bincount(numbers[valid], minlength=len(lengths))
        bits, ts = bits[valid], ts[valid]
    some = lengths > 0
    named = labels if some.all() else [labels[n] for n in np.flatnonzero(some)]
    return Matrix(named, lengths[some], (ts * 1000).view("datetime64[us]"), bits.view(np.float64))
