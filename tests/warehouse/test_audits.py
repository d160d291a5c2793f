"""Audits are silent over sound tables; each one speaks when its table is broken."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from fallow.settings import Settings, load
from fallow.tables import Batch
from fallow.window import Window
from tests.rates import every_gpu
from warehouse import audits
from warehouse.allocation import write_allocations
from warehouse.dirty import clear_marks, take_marks
from warehouse.lake import Warehouse
from warehouse.ledger import write_ledger
from warehouse.rollup import roll_up

HOURS = 2
NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
SAVED = """
    INSERT INTO saving BY NAME
    SELECT
        cluster,
        'a' AS action,
        unnest(['served', 'released']) AS kind,
        namespace,
        workload_kind,
        workload,
        TIMESTAMP '2026-11-20 11:00' AS start,
        TIMESTAMP '2026-11-20 12:00' AS "end",
        unnest([0.5, 0.25]) AS gpu_hours,
        unnest([1.0, 0.0]) AS held_gpu_hours,
        unnest([1.0, 0.5]) AS usd,
        unnest([2.0, 0.0]) AS held_usd
    FROM (FROM allocation WHERE workload IS NOT NULL LIMIT 1)
"""


@pytest.fixture
def sound(accounted: Warehouse) -> Warehouse:
    """Return the warehouse with every hour accounted: a test may have stored prices again."""
    take_marks(accounted)
    clear_marks(accounted, Window(NOW - timedelta(hours=HOURS), NOW))
    return accounted


@pytest.fixture(scope="module")
def accounted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Warehouse]:
    """Return a warehouse whose every step has run; tests break it and mend it."""
    now = NOW
    home = tmp_path_factory.mktemp("audited")
    settings: Settings = load(environ={}, flags={"home": home, "cluster": "test"}).settings
    start = datetime(2026, 11, 20, 12 - HOURS)  # noqa: DTZ001
    samples = [(start + timedelta(minutes=k), d) for k in range(60 * HOURS) for d in range(2)]
    n = len(samples)
    with Warehouse.open_in_memory(settings, clock=lambda: now) as warehouse:
        warehouse.ingest(
            [
                Batch.of(
                    "sample",
                    {
                        "cluster": ["test"] * n,
                        "ts": [ts for ts, _ in samples],
                        "device": [f"GPU-{d}" for _, d in samples],
                        "node": ["node"] * n,
                        "model": ["NVIDIA H100 80GB HBM3"] * n,
                        "interval_s": [60.0] * n,
                        "namespace": ["ns" if d else None for _, d in samples],
                        "pod": ["pod" if d else None for _, d in samples],
                        "gpu_util_pct": [90.0 * d for _, d in samples],
                        "energy_mj": [int((ts - start).total_seconds() * 1e5) for ts, _ in samples],
                    },
                ),
                every_gpu("2"),
            ]
        )
        roll_up(warehouse)
        window = Window(now - timedelta(hours=HOURS), now)
        write_allocations(warehouse, window)
        write_ledger(warehouse, window)
        take_marks(warehouse)
        clear_marks(warehouse, window)
        with warehouse.transaction() as cursor:
            cursor.execute(SAVED)
        yield warehouse


def test_sound_tables_pass_every_audit(sound: Warehouse) -> None:
    assert audits.run_audits(sound) == []
    ledger = sound.query("SELECT sum(seconds) AS s, sum(usd) AS usd FROM ledger").to_pylist()[0]
    assert ledger["s"] == pytest.approx(2 * HOURS * 3600)
    assert float(ledger["usd"]) == pytest.approx(2 * HOURS * 2)


BREAKS = {
    "seconds lost": ("ledger", "UPDATE ledger SET seconds = seconds - 60 WHERE device = 'GPU-0'"),
    "an hour not posted": (
        "ledger",
        "DELETE FROM ledger WHERE device = 'GPU-0' AND bucket = '2026-11-20 10:00'",
    ),
    "seconds twice": ("ledger", "UPDATE ledger SET seconds = seconds * 2 WHERE device = 'GPU-1'"),
    "dollars added": ("ledger", "UPDATE ledger SET usd = usd + 0.02 WHERE device = 'GPU-1'"),
    "a wrong rate throughout": ("ledger", "UPDATE ledger SET usd = usd * 1.1"),
    "one state dearer than another": (
        "ledger",
        """
        UPDATE ledger SET seconds = seconds / 2, gpu_seconds = gpu_seconds / 2, usd = usd / 2;
        INSERT INTO ledger SELECT * REPLACE ('low' AS state, usd + 0.02 AS usd) FROM ledger;
        UPDATE ledger SET usd = usd - 0.02 WHERE state <> 'low'
        """,
    ),
    "dollars without a price": ("ledger", "UPDATE ledger SET priced = false"),
    "held twice": (
        "allocation",
        "INSERT INTO allocation SELECT * REPLACE ('other' AS pod_uid) FROM allocation",
    ),
    "shares beyond one": (
        "allocation",
        "UPDATE allocation SET share = 1.2, attribution = 'estimated'",
    ),
    "energy falls": ("rollup_1h", "UPDATE rollup_1h SET energy_mj = -1"),
    "energy beyond TDP": ("rollup_1h", "UPDATE rollup_1h SET energy_mj = 5040000000"),
    "more hours saved than held": ("saving", "UPDATE saving SET gpu_hours = 0.51"),
    "more dollars saved than paid": ("saving", "UPDATE saving SET usd = 1.01"),
    "held more than was there": ("saving", "UPDATE saving SET held_gpu_hours = 0.6"),
    "saved by a stranger": ("saving", "UPDATE saving SET workload = 'other'"),
    "a kind twice": ("saving", "UPDATE saving SET kind = 'cash'"),
    "tomorrow": (
        "sample",
        "INSERT INTO sample SELECT * REPLACE (ts + INTERVAL 1 DAY AS ts) FROM sample LIMIT 1",
    ),
    "more than the bucket": (
        "rollup_5m",
        "UPDATE rollup_5m SET covered_s = 301, idle_s = 301, busy_s = 0 WHERE n > 0",
    ),
    "two names speak for one bucket twice": (
        "rollup_5m",
        "INSERT INTO rollup_5m SELECT * REPLACE ('other' AS pod) FROM rollup_5m WHERE n > 0",
    ),
    "a class lost": ("rollup_1h", "UPDATE rollup_1h SET busy_s = 0"),
    "an hour without totals": (
        "ledger_1h",
        "DELETE FROM ledger_1h WHERE bucket = '2026-11-20 10:00'",
    ),
    "a day's GPU part off by the least": (
        "ledger_1d",
        "UPDATE ledger_1d SET usd_gpu = usd_gpu + 0.00000001",
    ),
    "a day's GPU-hours off": ("ledger_1d", "UPDATE ledger_1d SET gpu_seconds = gpu_seconds + 1"),
}
SPEAKS = {
    "seconds lost": {"ledger_capacity"},
    "an hour not posted": {"ledger_capacity", "ledger_totals"},
    "seconds twice": {"ledger_capacity"},
    "dollars added": {"bill_sum", "ledger_totals"},
    "a wrong rate throughout": {"bill_sum", "ledger_totals"},
    "one state dearer than another": {"bill", "ledger_totals"},
    "dollars without a price": {"bill"},
    "held twice": {"over_allocated", "overlap"},
    "shares beyond one": {"over_allocated"},
    "energy falls": {"energy"},
    "energy beyond TDP": {"energy"},
    "more hours saved than held": {"saved"},
    "more dollars saved than paid": {"saved"},
    "held more than was there": {"saved"},
    "saved by a stranger": {"saved"},
    "a kind twice": {"saved"},
    "tomorrow": {"future"},
    "more than the bucket": {"coverage"},
    "two names speak for one bucket twice": {"coverage"},
    "a class lost": {"classes"},
    "an hour without totals": {"ledger_totals"},
    "a day's GPU part off by the least": {"ledger_totals"},
    "a day's GPU-hours off": {"ledger_totals"},
}


@pytest.mark.parametrize("name", BREAKS)
def test_each_break_is_seen(sound: Warehouse, name: str) -> None:
    table, sql = BREAKS[name]
    kept = sound.query(f"FROM {table}")
    with sound.transaction() as cursor:
        cursor.execute(sql)
    try:
        failures = {f.audit: f for f in audits.run_audits(sound)}
    finally:
        sound.replace(table, kept)
    assert set(failures) == SPEAKS[name]
    for failure in failures.values():
        assert failure.rows >= 1
        assert len(failure.sample) <= audits.MOST_SHOWN
        assert str(failure).startswith(f"{failure.audit}: ")


@pytest.mark.parametrize(
    ("seconds", "failed"), [(1.0, False), (1.01, True), (-1.0, False), (-1.01, True)]
)
@pytest.mark.parametrize("device", ["GPU-0", "GPU-1"])
def test_a_device_s_hour_may_be_a_second_off_either_way(
    sound: Warehouse, device: str, seconds: float, failed: bool
) -> None:
    kept = sound.query("FROM ledger")
    change = (
        "UPDATE ledger SET seconds = seconds + $seconds "
        "WHERE device = $device AND bucket = '2026-11-20 10:00' AND seconds > 3000"
    )
    with sound.transaction() as cursor:
        (changed,) = cursor.execute(change, {"seconds": seconds, "device": device}).fetchone() or (
            0,
        )
    try:
        failures = {f.audit for f in audits.run_audits(sound)}
    finally:
        sound.replace("ledger", kept)
    assert changed == 1
    assert ("ledger_capacity" in failures) is failed


def test_a_device_that_only_the_ledger_knows_has_an_hour_in_the_hour(sound: Warehouse) -> None:
    kept = sound.query("FROM ledger")
    seen = {}
    for seconds in (3600.0, 3601.0, 3601.01):
        with sound.transaction() as cursor:
            cursor.execute(
                "INSERT INTO ledger SELECT * REPLACE ('GPU-9' AS device, $seconds AS seconds) "
                "FROM ledger WHERE device = 'GPU-0' AND bucket = '2026-11-20 10:00'",
                {"seconds": seconds},
            )
        try:
            seen[seconds] = "ledger_capacity" in {f.audit for f in audits.run_audits(sound)}
        finally:
            sound.replace("ledger", kept)
    assert seen == {3600.0: False, 3601.0: False, 3601.01: True}


def test_every_audit_has_a_break() -> None:
    assert set().union(*SPEAKS.values()) == set(audits.list_audits())


def test_a_window_bounds_what_is_audited(sound: Warehouse, now: datetime) -> None:
    with sound.transaction() as cursor:
        cursor.execute("UPDATE rollup_1h SET busy_s = 0 WHERE bucket = '2026-11-20 10:00'")
    hour = timedelta(hours=1)
    late, early = Window(now - hour, now), Window(now - 2 * hour, now - hour)
    assert audits.run_audits(sound, late) == []
    assert [f.audit for f in audits.run_audits(sound, early)] == ["classes"]
    roll_up(sound, early)
    assert audits.run_audits(sound) == []
