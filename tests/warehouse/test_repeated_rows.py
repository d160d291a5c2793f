"""Rows that are repeated within one long delivery are stored once, as in a short one."""

from collections.abc import Iterator
from datetime import datetime, timedelta

import pytest

from fallow.settings import Settings
from fallow.tables import Batch
from warehouse import ingest
from warehouse.lake import Warehouse

START = datetime(2026, 11, 20, 6, 0)  # noqa: DTZ001


@pytest.fixture
def wh(settings: Settings, now: datetime) -> Iterator[Warehouse]:
    with Warehouse.open(settings, write=True, clock=lambda: now) as warehouse:
        yield warehouse


def build(keys: list[tuple[str, int]]) -> Batch:
    return Batch.of(
        "sample",
        {
            "cluster": ["test"] * len(keys),
            "device": [device for device, _ in keys],
            "ts": [START + timedelta(microseconds=micros) for _, micros in keys],
        },
    )


KEYS = [(f"GPU-{n % 50}", 60_000_000 * (n // 50)) for n in range(5_000)]


@pytest.mark.parametrize("least", [1, 10**9])
@pytest.mark.parametrize(
    ("repeated", "count"),
    [
        ([], 0),
        ([KEYS[0]], 1),
        ([KEYS[-1]], 1),
        (KEYS[100:150], 50),
        ([("GPU-0", 1), ("GPU-1", 1)], 0),  # one microsecond later than another row
    ],
)
def test_each_key_is_stored_once_however_long_the_delivery_is(
    wh: Warehouse,
    monkeypatch: pytest.MonkeyPatch,
    least: int,
    repeated: list[tuple[str, int]],
    count: int,
) -> None:
    monkeypatch.setattr(ingest, "SMALL_ROWS", least)
    keys = [*KEYS, *repeated]
    result = wh.ingest([build(keys)])
    assert (result.added, result.duplicates) == (len(keys) - count, count)
    [stored] = wh.query("SELECT count(*) AS n FROM sample").to_pylist()
    assert stored["n"] == len(set(keys))
