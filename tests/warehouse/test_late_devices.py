"""The writer knows the devices of late samples, or says that it does not know them."""

from collections.abc import Iterator
from datetime import datetime, timedelta

import pytest

from fallow.settings import Settings
from fallow.tables import Batch
from warehouse import ingest
from warehouse.lake import Warehouse
from warehouse.late_devices import MOST_DEVICES, LateDevices, SampleMarks
from warehouse.rollup import list_due, roll_up

START = datetime(2026, 11, 20, 6, 0)  # noqa: DTZ001
BUCKET = timedelta(minutes=5)
MARK = ("test", START)


@pytest.fixture
def writer(settings: Settings, now: datetime) -> Iterator[Warehouse]:
    with Warehouse.open(settings, write=True, clock=lambda: now) as warehouse:
        yield warehouse


def build_samples(*devices: str, second: float = 1) -> Batch:
    n = len(devices)
    ts = [START + timedelta(seconds=second)] * n
    return Batch.of(
        "sample",
        {"cluster": ["test"] * n, "ts": ts, "device": devices, "interval_s": [60.0] * n},
    )


def find_late(writer: Warehouse) -> frozenset[str] | None:
    (due,) = list_due(writer)
    return writer.late.find(due.cluster, due.marks, due.start, due.end)


def test_devices_are_known_since_the_last_roll_up(writer: Warehouse) -> None:
    writer.ingest([build_samples("GPU-0", "GPU-1")])
    assert find_late(writer) == frozenset({"GPU-0", "GPU-1"})
    roll_up(writer)
    writer.ingest([build_samples("GPU-1", second=2)])
    with writer.transaction() as cursor:  # any other write
        cursor.execute("DELETE FROM unposted")
    writer.ingest([build_samples("GPU-2", second=2)])
    assert find_late(writer) == frozenset({"GPU-1", "GPU-2"})


def test_devices_of_a_mark_that_another_writer_left_are_not_known(
    settings: Settings, now: datetime
) -> None:
    with Warehouse.open(settings, write=True, clock=lambda: now) as writer:
        writer.ingest([build_samples("GPU-0")])
    with Warehouse.open(settings, write=True, clock=lambda: now) as writer:
        assert find_late(writer) is None
        writer.ingest([build_samples("GPU-1")])
        assert find_late(writer) is None
        roll_up(writer)
        writer.ingest([build_samples("GPU-1", second=2)])
        assert find_late(writer) == frozenset({"GPU-1"})


def test_nothing_is_known_after_an_ingest_that_failed(
    writer: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer.ingest([build_samples("GPU-0")])
    roll_up(writer)
    writer.ingest([build_samples("GPU-0", second=2)])
    with monkeypatch.context() as patch:
        patch.setattr(ingest, "mark_buckets", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            writer.ingest([build_samples("GPU-1", second=2)])
    assert find_late(writer) is None


@pytest.mark.parametrize(("count", "known"), [(MOST_DEVICES, True), (MOST_DEVICES + 1, False)])
def test_more_devices_than_the_most_are_not_late_ones(
    writer: Warehouse, count: int, known: bool
) -> None:
    names = [f"GPU-{n}" for n in range(count)]
    writer.ingest([build_samples(*names)])
    assert (find_late(writer) is not None) == known
    roll_up(writer)
    writer.ingest([build_samples(*names[::2], second=2)])
    writer.ingest([build_samples(*names[1::2], second=2)])
    assert (find_late(writer) is not None) == known


def test_marks_that_come_while_others_are_rolled_up_count() -> None:
    late, none = LateDevices(), frozenset[str]()
    fresh = frozenset({MARK})
    late.note(SampleMarks(fresh, fresh, fresh, frozenset({"GPU-0"})))
    later = frozenset({("test", START + BUCKET)})
    late.note(SampleMarks(later, later, later, frozenset({"GPU-1"})))
    end = START + 2 * BUCKET
    assert late.find("test", (START,), START, end) == frozenset({"GPU-0", "GPU-1"})
    assert late.find("test", (START,), START, START + BUCKET) == frozenset({"GPU-0"})
    assert late.find("other", (), START, end) == none
    assert late.find("test", (START, end), START, end) is None  # a mark that it never saw
    late.forget("test", START, START + BUCKET)
    assert late.find("test", (START,), START, end) is None
    assert late.find("test", (START + BUCKET,), START, end) == frozenset({"GPU-1"})
