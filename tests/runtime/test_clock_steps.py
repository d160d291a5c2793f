"""Collectors whose clock is set, hosts whose clocks differ: the ledger's hours stay hours."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from fallow.settings import Settings
from fallow.tables import Batch
from fallow.window import Window
from runtime.operations.accounting import pipeline
from runtime.operations.acting.live_evidence import LiveEvidence
from warehouse import audits
from warehouse.lake import Warehouse

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)


def sample(at: datetime, device: str = "GPU-1") -> Batch:
    row: dict[str, Any] = {
        "cluster": "test",
        "ts": at.replace(tzinfo=None),
        "device": device,
        "node": "n1",
        "interval_s": 60.0,
        "gpu_util_pct": 90.0,
    }
    return Batch.of("sample", {name: [value] for name, value in row.items()})


class Collector:
    """One host that scrapes once a minute, and accounts now and then, by a clock that is set."""

    def __init__(self, settings: Settings) -> None:
        self.now = NOW - 4 * HOUR
        self.warehouse = Warehouse.open_in_memory(settings, clock=lambda: self.now)

    def run(self, minutes: int, *, step: timedelta = timedelta(0)) -> None:
        self.now += step
        for _ in range(minutes // 30):
            scrapes = [sample(self.now + n * MINUTE) for n in range(1, 31)]
            self.now += 30 * MINUTE
            pipeline.ingest(self.warehouse, scrapes)
        self.account()

    def account(self) -> list[Any]:
        return list(pipeline.account(self.warehouse, Window.last(2 * HOUR, now=self.now))[1])

    def seconds(self) -> dict[tuple[datetime, str], float]:
        sql = "SELECT bucket, state, sum(seconds) AS s FROM ledger GROUP BY ALL"
        rows = self.warehouse.query(sql).to_pylist()
        return {(row["bucket"], row["state"]): row["s"] for row in rows}

    def audit(self) -> set[str]:
        """Return the audits of all hours that fail."""
        return {failure.audit for failure in audits.run_audits(self.warehouse)}

    def last_hours(self) -> set[datetime]:
        """Return the last hour of the ledger, and of each of its totals."""
        tables = ("ledger", "ledger_1h")
        maxima = (self.warehouse.query(f"SELECT max(bucket) AS b FROM {t}") for t in tables)
        return {rows["b"][0].as_py() for rows in maxima}


# One hour ahead: as five, with fewer hours that have to leave.
@pytest.mark.parametrize("step", [pytest.param(HOUR, marks=pytest.mark.long), 5 * HOUR], ids=str)
def test_hours_of_a_clock_that_was_ahead_leave_the_ledger_until_they_begin(
    settings: Settings, step: timedelta
) -> None:
    host = Collector(settings)
    with host.warehouse:
        host.run(90)
        before = host.seconds()
        host.run(30, step=step)
        assert max(host.last_hours()) > (host.now - step).replace(tzinfo=None)
        ahead = host.now.replace(tzinfo=None)
        host.run(30, step=-step)
        this_hour = (host.now - timedelta(microseconds=1)).replace(minute=0, second=0, tzinfo=None)
        assert host.last_hours() == {this_hour.replace(microsecond=0)}
        assert host.audit() <= {"future"}
        first = min(bucket for bucket, _ in before)
        assert host.seconds()[first, "productive"] == before[first, "productive"]

        while host.now.replace(tzinfo=None) < ahead + HOUR:
            host.run(120)
            assert host.audit() <= {"future"}
        assert host.audit() == set()
        by_hour: dict[datetime, float] = {}
        for (bucket, _state), length in host.seconds().items():
            by_hour[bucket] = by_hour.get(bucket, 0.0) + length
        whole = [length for bucket, length in by_hour.items() if first < bucket < this_hour]
        assert whole == pytest.approx([3600.0] * len(whole))
        wasted = {state for _, state in host.seconds()} - {"productive", "unknown"}
        assert not wasted


@pytest.mark.parametrize("gap", [8 * HOUR, -5 * HOUR], ids=["away", "clock back"])
def test_a_device_whose_lifetime_grows_by_many_hours_has_all_of_them(
    settings: Settings, gap: timedelta
) -> None:
    host = Collector(settings)
    with host.warehouse:
        host.run(30)
        host.run(30, step=gap)
        assert host.audit() <= {"future"}
        host.run(30, step=max(-gap, timedelta(0)))
        assert host.audit() == set()
        devices = host.warehouse.query("SELECT first_seen AS f, last_seen AS l FROM device")
        lifetime = (devices["l"][0].as_py() - devices["f"][0].as_py()).total_seconds()
        assert sum(host.seconds().values()) == pytest.approx(lifetime)


@pytest.mark.parametrize("step", [HOUR, -HOUR], ids=["forward", "back"])
def test_every_hour_has_its_seconds_once_over_a_step(settings: Settings, step: timedelta) -> None:
    host = Collector(settings)
    with host.warehouse:
        host.run(90)
        host.run(90, step=step)
        assert host.account() == []
        seconds = host.seconds()
        by_hour: dict[datetime, float] = {}
        for (bucket, _state), length in seconds.items():
            by_hour[bucket] = by_hour.get(bucket, 0.0) + length
        assert max(by_hour.values()) <= 3600.0
        productive = sum(s for (_, state), s in seconds.items() if state == "productive")
        if step > timedelta(0):  # the skipped hour was never seen: it is no use and no waste
            assert productive == pytest.approx(180 * 60, abs=300)
            assert "idle" not in {state for _, state in seconds}
        else:  # the hour that the clock showed twice counts once
            assert productive == pytest.approx(120 * 60, abs=300)


def test_samples_of_a_host_that_is_ten_minutes_ahead_are_not_stored_as_of_the_future(
    settings: Settings,
) -> None:
    with Warehouse.open_in_memory(settings, clock=lambda: NOW) as warehouse:
        ahead = warehouse.ingest([sample(NOW + 10 * MINUTE)])
        behind = warehouse.ingest([sample(NOW - 10 * MINUTE), sample(NOW + MINUTE)])
        assert (ahead.added, ahead.future) == (0, 1)
        assert (behind.added, behind.future) == (2, 0)


def test_an_old_reading_is_read_again_though_the_clock_was_set_back(settings: Settings) -> None:
    read: list[datetime] = []
    ticks = [0.0]
    nothing: Any = None  # no case is judged here
    evidence = LiveEvidence(nothing, settings, read.append, lambda: NOW, ticks=lambda: ticks[0])
    evidence.read_sources(NOW)
    ticks[0] += 1
    evidence.read_sources(NOW + timedelta(seconds=1))
    assert len(read) == 1
    ticks[0] += 3600
    evidence.read_sources(NOW + timedelta(seconds=2))
    assert len(read) == 2, "an hour passed, by the clock that is never set"
    evidence.read_sources(NOW - HOUR)
    assert len(read) == 3, "the clock was set back"
