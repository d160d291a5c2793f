"""Chunks that a server streams are decoded as the server wrote them, or refused."""

import json
import struct
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
import requests

from collectors.prometheus.client import PrometheusClient
from collectors.prometheus.remote_fields import AnswerError
from collectors.prometheus.streamed_chunks import decode_stream
from collectors.prometheus.xor_chunks import decode_chunks
from fallow.errors import SourceError
from fallow.settings import load
from fallow.window import Window

START = datetime(2026, 11, 19, tzinfo=UTC)
FIRST = round(START.timestamp() * 1000)
HOURS = Window(START, START + timedelta(hours=6))
STALE = struct.unpack("<d", (0x7FF0000000000002).to_bytes(8, "little"))[0]
LIMIT = 2**28
Samples = Sequence[tuple[int, float]]


def varint(number: int) -> bytes:
    return bytes([number]) if number < 128 else bytes([number & 127 | 128]) + varint(number >> 7)


def field(number: int, content: bytes) -> bytes:
    return bytes([number << 3 | 2]) + varint(len(content)) + content


def write_bits(number: int, width: int) -> str:
    return f"{number % (1 << width):0{width}b}"


def write_step(change: int) -> str:
    if change == 0:
        return "0"
    for prefix, width in (("10", 14), ("110", 17), ("1110", 20)):
        if -((1 << (width - 1)) - 1) <= change <= 1 << (width - 1):
            return prefix + write_bits(change, width)
    return "1111" + write_bits(change, 64)


class ChunkWriter:
    """Writes a chunk sample by sample, as the server does."""

    def __init__(self) -> None:
        self.bits = ""
        self.count = 0
        self.ts = self.step = self.number = 0
        self.zeros: tuple[int, int] | None = None

    def append(self, ts: int, value: float) -> None:
        number = struct.unpack(">Q", struct.pack(">d", value))[0]
        if self.count == 0:
            self.bits += self.octets(varint(ts * 2)) + write_bits(number, 64)
        else:
            step = ts - self.ts
            if self.count == 1:
                self.bits += self.octets(varint(step))
            else:
                self.bits += write_step(step - self.step)
            self.step = step
            self.bits += self.change(self.number ^ number)
        self.ts, self.number, self.count = ts, number, self.count + 1

    def change(self, changed: int) -> str:
        if not changed:
            return "0"
        leading = min(64 - changed.bit_length(), 31)
        trailing = (changed & -changed).bit_length() - 1
        if self.zeros and leading >= self.zeros[0] and trailing >= self.zeros[1]:
            leading, trailing = self.zeros
            return "10" + write_bits(changed >> trailing, 64 - leading - trailing)
        self.zeros = leading, trailing
        width = 64 - leading - trailing
        return (
            "11"
            + write_bits(leading, 5)
            + write_bits(width, 6)
            + write_bits(changed >> trailing, width)
        )

    @staticmethod
    def octets(data: bytes) -> str:
        return "".join(f"{octet:08b}" for octet in data)

    def finish(self) -> bytes:
        whole = self.bits + "0" * (-len(self.bits) % 8)
        data = bytes(int(whole[n : n + 8], 2) for n in range(0, len(whole), 8))
        return struct.pack(">H", self.count) + data


def chunk(samples: Samples) -> bytes:
    writer = ChunkWriter()
    for ts, value in samples:
        writer.append(ts, value)
    return writer.finish()


def series(name: str, *chunks: bytes, kind: int = 1) -> bytes:
    return label({"n": name}, *chunks, kind=kind)


def label(names: Mapping[str, str], *chunks: bytes, kind: int = 1) -> bytes:
    labels = b"".join(
        field(1, field(1, name.encode()) + field(2, value.encode()))
        for name, value in names.items()
    )
    # The times of a chunk are not read: its samples have them.
    times = b"\x08" + varint(FIRST) + b"\x10" + varint(FIRST) + b"\x18" + varint(kind)
    return field(1, labels + b"".join(field(2, times + field(4, data)) for data in chunks))


def frame(*parts: bytes) -> bytes:
    content = b"".join(parts)
    return varint(len(content)) + b"sums" + content


def read(body: bytes, window: Window = HOURS, limit: int = LIMIT) -> dict[str, Samples]:
    matrix = decode_stream(body, {}, window, limit=limit)
    cuts = np.cumsum(matrix.lengths)[:-1]
    ms = np.split(matrix.ts.astype(np.int64) // 1000, cuts)
    values = np.split(matrix.values, cuts)
    return {
        json.loads(text)["n"]: list(zip(t.tolist(), v.tolist(), strict=True))
        for text, t, v in zip(matrix.labels, ms, values, strict=True)
    }


def draw_samples(rng: np.random.Generator, count: int) -> list[tuple[int, float]]:
    """Return samples whose steps and values need every form."""
    steps = rng.choice([1, 15_000, 15_001, 14_990, 60_000, 90_000, 700_000, 2**33, 2**45], count)
    ts = (FIRST + np.cumsum(steps)).tolist()
    simple = rng.choice([0.0, -0.0, 1.0, 100.0, 1980.0, np.inf, 1e-300, 5e-324], count)
    values = np.where(rng.random(count) < 0.4, rng.normal(300, 90, count), simple)
    values = np.where(rng.random(count) < 0.3, np.roll(values, 1), values)
    return list(zip(ts, values.tolist(), strict=True))


@pytest.mark.parametrize("seed", range(5))
def test_chunks_of_any_lengths_and_steps_are_decoded(seed: int) -> None:
    rng = np.random.default_rng(seed)
    many = [draw_samples(rng, int(count)) for count in rng.integers(1, 130, 40)]
    chunks = [chunk(samples) for samples in many]
    ends = np.cumsum([len(data) for data in chunks])
    starts = ends - [len(data) for data in chunks]
    lengths, ts, bits = decode_chunks(b"".join(chunks), starts, ends, most=10_000)
    assert lengths.tolist() == [len(samples) for samples in many]
    assert ts.tolist() == [at for samples in many for at, _ in samples]
    expected = np.array([value for samples in many for _, value in samples])
    assert bits.tolist() == expected.view(np.uint64).tolist()


def test_the_ends_of_each_range_of_changes_are_decoded() -> None:
    changes = [
        sign * (1 << bits) + more
        for bits in (13, 16, 19, 40)
        for sign in (1, -1)
        for more in (-1, 0, 1)
    ]
    ts = FIRST + np.cumsum(2**42 + np.cumsum([0, *changes]))
    samples = [(at, 1.0) for at in ts.tolist()]
    data = chunk(samples)
    _, decoded, _ = decode_chunks(data, np.array([0]), np.array([len(data)]), most=100)
    assert decoded.tolist() == ts.tolist()


def test_series_go_on_in_the_next_frame_and_are_cut_to_the_window() -> None:
    minutes = [(FIRST + 60_000 * n, n % 7 * 1.5) for n in range(-30, 500)]
    first, second, third = minutes[:120], minutes[120:240], minutes[240:]
    body = (
        frame(series("a", chunk(first), chunk(second)))
        + frame(series("a", chunk(third)), b"\x10\x00")
        + frame(series("b", chunk(second)), series("gone", chunk(minutes[:30])))
    )
    assert read(body) == {"a": minutes[30:390], "b": second}
    assert read(frame(series("a", DATA + b"\x00"))) == {"a": PLAIN}
    assert not decode_stream(b"", {}, HOURS, limit=LIMIT).labels


def test_a_stale_marker_is_no_sample_and_nan_is_one() -> None:
    rows = read(
        frame(
            series("gone", chunk([(FIRST, STALE)])),
            series("b", chunk([(FIRST, np.nan), (FIRST + 1, STALE), (FIRST + 2, 3.0)])),
        )
    )
    assert list(rows) == ["b"]
    assert [at for at, _ in rows["b"]] == [FIRST, FIRST + 2]
    assert np.isnan(rows["b"][0][1])
    assert rows["b"][1][1] == 3.0


PLAIN = [(FIRST + 60_000 * n, 1.5 * n) for n in range(9)]
DATA = chunk(PLAIN)
WHOLE = frame(series("a", DATA))


@pytest.mark.parametrize(
    "body",
    [
        WHOLE[:-1],
        WHOLE + b"expanding series: context deadline exceeded\n",
        WHOLE + b"\xff",
        frame(series("a", DATA), b"\x1a\x00"),
        frame(series("a", DATA, kind=2)),  # a histogram
        frame(series("a", DATA[:-1])),
        frame(series("a", DATA + b"\x00\x00")),
        frame(series("a", b"\x00\xff" + DATA[2:])),
        frame(series("a", b"\x00\x02" + DATA[2:])),
        frame(series("a", b"\x00\x00")),
        frame(series("a", b"\x00")),
        frame(series("a", b"\x00\x01" + b"\xff" * 20)),
        frame(series("a", DATA, DATA)),
        frame(series("a", chunk(PLAIN[:5]), chunk(PLAIN[4:]))),  # the same time twice
        frame(series("a", chunk(PLAIN[5:]), chunk(PLAIN[:5]))),
        frame(field(1, field(3, b"x"))),
    ],
)
def test_an_answer_of_another_form_is_refused(body: bytes) -> None:
    assert read(WHOLE) == {"a": PLAIN}
    with pytest.raises(AnswerError):
        read(body)


def test_an_answer_with_too_many_samples_is_refused() -> None:
    assert read(WHOLE, limit=18 * len(PLAIN)) == {"a": PLAIN}
    with pytest.raises(AnswerError, match="more than 8 samples"):
        read(WHOLE, limit=18 * len(PLAIN) - 1)


def test_a_stream_without_a_known_end_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    client = PrometheusClient(
        load(environ={}, flags={"prometheus.url": "http://p"}).settings.prometheus
    )
    response = requests.Response()
    response.status_code = 200
    response.headers["Content-Type"] = "application/x-streamed-protobuf; proto=x"
    monkeypatch.setattr(client, "_send", lambda *_, **__: (response, WHOLE))
    with pytest.raises(SourceError, match="where its stream ends"):
        client.post_read(b"")
    response.headers["Transfer-Encoding"] = "chunked"
    assert client.post_read(b"") == WHOLE
    response.headers["Content-Type"] = "application/x-protobuf"
    with pytest.raises(SourceError, match="has no remote read"):
        client.post_read(b"")
    client.close()
