"""Fuzz the exposition parser with coverage guidance.

    python tests/fuzz/fuzz_exposition.py -runs=100000

Whatever the bytes, nothing raises, and a target read through a learned template gives the very
rows and counts that the full parser gives. The input is two bodies of one target, cut at the
first zero byte; a body without one is laid over a valid exposition at the place its first two
bytes say, so that the fuzzer starts near the interesting side.
"""

import sys
from pathlib import Path

import atheris

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

with atheris.instrument_imports(include=["collectors"]):
    from collectors.exposition import parse_tail, read
    from collectors.reader import Reader

import numpy as np

MOMENT = np.datetime64("2026-11-20T12:00:00", "us")
VALID = (
    b"# HELP DCGM_FI_DEV_GPU_UTIL GPU utilization (in %).\n"
    b"# TYPE DCGM_FI_DEV_GPU_UTIL gauge\n"
    b'DCGM_FI_DEV_GPU_UTIL{gpu="0",UUID="GPU-a",pod="p",namespace="n"} 99\n'
    b'DCGM_FI_DEV_GPU_UTIL{gpu="1",UUID="GPU-b"} 0\n'
    b'DCGM_FI_PROF_GR_ENGINE_ACTIVE{gpu="0",UUID="GPU-a",pod="p",namespace="n"} 0.982000\n'
    b"go_goroutines 8\n"
)


def one_input(data: bytes) -> None:
    """Check one input."""
    read(data)
    read(data, whole=True)
    parse_tail(data)
    first, zero, second = data.partition(b"\0")
    if not zero:
        place = int.from_bytes(data[:2], "big") % len(VALID)
        first, second = VALID, VALID[:place] + data[2:] + VALID[place + len(data[2:]) :]
    reader = Reader()
    _rows(reader, first)
    learned, fresh = _rows(reader, second), _rows(Reader(), second)
    if learned != fresh:
        raise AssertionError(f"template {learned} != parser {fresh}")


def _rows(reader: Reader, body: bytes) -> str:
    reader.feed("t", body, {"instance": "node:9400"})
    reading = reader.finish(MOMENT, cluster="c", interval_s=30, source="fuzz")
    rows = [
        (
            batch.table,
            sorted((name, str(value)) for name, value in row.items() if value is not None),
        )
        for batch in reading.assembled.batches
        for row in batch.rows.to_pylist()
    ]
    # Devices are numbered as they are met, so the order of rows is no part of the answer.
    return repr((sorted(rows), reading.scrapes))


if __name__ == "__main__":
    atheris.Setup(sys.argv, one_input)
    atheris.Fuzz()
