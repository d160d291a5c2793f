"""Rows of idleness that accounting kept give the verdicts that rollups give."""

from collections.abc import Iterator
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzers.idle import kept_rows, pieces
from analyzers.idle import samples as source
from analyzers.idle.analyzer import IdleAnalyzer
from analyzers.idle.kept_hours import derive_rows
from analyzers.idle.return_probability import HourReader
from analyzers.idle.spans import MEASURES
from benchmarks import month
from fallow.models import Finding
from fallow.settings.idle import IdleSettings
from fallow.window import Window
from runtime.operations.accounting import idle_hours
from warehouse import dirty, idle_rows
from warehouse.allocation import write_allocations
from warehouse.lake import Warehouse
from warehouse.ledger import write_ledger
from warehouse.signals import frozen, write_signals
from warehouse.signals.runs import (
    BUCKET_US,
    BUSY,
    IDLE,
    DeviceSamples,
    find_idle_runs,
)

HOURS = 4
BUCKETS = 12 * HOURS
SETTINGS = IdleSettings(exit_samples=2)
NO_EDGES = pl.DataFrame(schema={"number": pl.Int64, "at_us": pl.Int64})


@st.composite
def rows_of(draw: st.DrawFn) -> DeviceSamples:
    """Draw four hours of five-minute rows of two devices: gaps, work, signs of life or none."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    device = np.repeat([0, 1], BUCKETS)
    at = np.tile(np.arange(BUCKETS) * BUCKET_US, 2)
    kept = rng.random(2 * BUCKETS) > draw(st.sampled_from([0.0, 0.05]))
    device, at = device[kept], at[kept]
    count = len(at)
    slow = draw(st.booleans())
    steps = draw(st.sampled_from([1, 3, 50]))

    def some(values: Any, share: float) -> Any:
        return np.where(np.repeat(rng.random(count), 6)[:count] < share, np.nan, values)

    flat = draw(st.booleans())
    watts = np.full(count, 70.0) if flat else 70 + rng.integers(0, steps, count) / 10
    measures = {
        "power_w": some(watts, 0.1),
        "still_w": np.where(rng.random(count) < 0.5 * (not flat), np.nan, watts),
        "energy_mj": some(np.where(flat, 0.0, watts * 3e5), draw(st.sampled_from([0.1, 1.1]))),
        "traffic_bps": some(rng.choice([2e5, 2e5, 3e5, 9e6], count), 0.2),
        "procs": some(rng.integers(0, 2, count).astype(float), 0.2),
        "kernel_age_s": some(np.arange(count) * 300.0, 0.5),
        "context": np.ones(count),
        "activity": np.full(count, np.nan),
        "idle_clock": np.full(count, np.nan),
    }
    interval = np.full(count, 120.0 if slow else 60.0)
    kinds = [IDLE] * 9 + [BUSY] * slow
    return DeviceSamples(
        device=device,
        at=at,
        validity=np.full(count, BUCKET_US),
        gap=np.asarray(kept_rows.compute_gap(interval, SETTINGS)),
        kind=rng.choice(kinds, count).astype(np.int8),
        sample_count=rng.integers(1, 6, count),
        interval_s=interval,
        measures={name: measures[name].astype(np.float64) for name in MEASURES},
        still=np.repeat(rng.random(count) < 0.1, 12)[:count],
        peak=rng.random(count) < 0.1,
        bucketed=True,
    )


def cut(samples: DeviceSamples, holds: pl.DataFrame) -> pieces.RunPieces:
    assert samples.still is not None
    still = frozen.extend_repeats(samples, samples.still)
    samples = msgspec.structs.replace(samples, still=still)
    runs = find_idle_runs(samples, exit_samples=SETTINGS.exit_samples, shortest_s=900)
    times = np.arange(1, HOURS + 1) * kept_rows.HOUR_US
    return pieces.cut_runs(samples, runs, holds, times, shortest_s=900)


def list_rows(frame: pl.DataFrame) -> list[dict[str, Any]]:
    """Return rows that may be compared: of changes only whether there are any."""
    if not frame.is_empty():
        frame = frame.with_columns(pl.col("changes") > 0)
    return frame.to_dicts()


@given(rows_of(), st.lists(st.integers(0, BUCKETS * 5), min_size=2, max_size=6, unique=True))
def test_joined_rows_have_the_pieces_of_their_five_minutes(
    samples: DeviceSamples, minutes: list[int]
) -> None:
    edges = [minute * BUCKET_US // 5 for minute in sorted(minutes)]
    holds = pl.DataFrame(
        [
            {"owner": n, "number": device, "start": start, "end": end, "share": 1.0}
            for device in (0, 1)
            for n, (start, end) in enumerate(pairwise(edges))
        ]
    )
    joined = kept_rows.join_buckets(samples, kept_rows.list_edges(holds))
    assert len(joined) < len(samples)
    assert not len(kept_rows.list_doubtful(joined, holds))
    names = pl.DataFrame({"number": [0, 1], "cluster": "c", "device": ["GPU-0", "GPU-1"]})
    stored = pl.DataFrame(kept_rows.build_table(joined, names))
    read = stored.with_columns(
        device=pl.col("device").str.tail(1).cast(pl.Int64), at=pl.col("bucket").dt.epoch("us")
    )
    again = kept_rows.build_samples(read.sample(fraction=1.0, shuffle=True).to_arrow(), SETTINGS)
    wanted = cut(samples, holds)
    for rows in (joined, again, kept_rows.widen(samples)):
        got = cut(rows, holds)
        for name in ("whole", "at"):
            pairs = zip(
                list_rows(getattr(got, name)), list_rows(getattr(wanted, name)), strict=True
            )
            for row, other in pairs:
                assert row == pytest.approx(other, rel=1e-6, nan_ok=True)
        assert got.peaks.sort("number", "at_us").equals(wanted.peaks.sort("number", "at_us"))


def test_a_holder_that_begins_within_a_row_makes_its_device_doubtful() -> None:
    samples = DeviceSamples(
        device=np.array([0, 0, 1]),
        at=np.array([0, BUCKET_US, 0]),
        validity=np.full(3, BUCKET_US),
        gap=np.full(3, BUCKET_US),
        kind=np.full(3, IDLE, dtype=np.int8),
        sample_count=np.full(3, 5),
        interval_s=np.full(3, 60.0),
        measures={name: np.full(3, np.nan) for name in MEASURES},
        bucketed=True,
    )
    joined = kept_rows.join_buckets(samples, NO_EDGES)
    assert joined.validity.tolist() == [2 * BUCKET_US, BUCKET_US]
    # At five minutes a row could have begun; after it the five minutes are the earlier holder's.
    for start, doubtful in ((0, []), (1, [0]), (BUCKET_US, [0]), (BUCKET_US + 1, [])):
        holds = pl.DataFrame({"number": [0, 1], "start": [start, 0], "end": [10**12, 10**12]})
        assert kept_rows.list_doubtful(joined, holds).tolist() == doubtful


def test_hours_are_ranges_and_what_is_between_them_the_rest() -> None:
    hour = kept_rows.HOUR_US
    ranges = kept_rows.list_ranges([hour, 2 * hour, 5 * hour])
    assert ranges == [(hour, 3 * hour), (5 * hour, 6 * hour)]
    rest = [(hour // 2, hour), (3 * hour, 5 * hour), (6 * hour, 6 * hour + 1)]
    assert kept_rows.list_rest((hour // 2, 6 * hour + 1), ranges) == rest
    assert kept_rows.list_ranges([]) == []


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Warehouse, Window]]:
    """Yield two days of 48 GPUs, some slow, with energy, traffic and processes of some nodes."""
    home = tmp_path_factory.mktemp("fleet")
    month.fill(home, 48, 2, with_signals=True)
    window = Window(month.START, month.START + timedelta(days=2))
    with month._open_warehouse(home) as warehouse:
        with warehouse.transaction() as cursor:
            cursor.execute((Path(__file__).parent / "kept_rows_measures.sql").read_text())
        write_allocations(warehouse, window)
        write_ledger(warehouse, window)
        yield warehouse, window


def find(warehouse: Warehouse, window: Window) -> list[Finding]:
    return IdleAnalyzer(warehouse.settings.idle).find(warehouse, window)


def test_kept_rows_give_the_findings_and_the_replay_of_rollups(
    fleet: tuple[Warehouse, Window], monkeypatch: pytest.MonkeyPatch
) -> None:
    warehouse, window = fleet
    odd = Window(window.start + timedelta(minutes=97), window.end - timedelta(minutes=143))
    times = [window.start + timedelta(hours=n + 1) for n in range(47)]

    def answer() -> list[Any]:
        past = IdleAnalyzer(warehouse.settings.idle).replay(warehouse, window, times)
        found = [find(warehouse, each) for each in (window, odd)]
        return [*(msgspec.to_builtins(each) for each in found), past.rows.to_pylist()]

    with warehouse.transaction() as cursor:
        idle_rows.forget_hours(cursor, *window.bounds().values())
    wanted = answer()
    for day in window.chunks(timedelta(days=1)):
        idle_hours.write_hours(warehouse, day)
    read: list[tuple[kept_rows.Range, ...]] = []
    list_ranges = source._list_kept

    def note_ranges(*given: Any) -> tuple[kept_rows.Range, ...]:
        read.append(list_ranges(*given))
        return read[-1]

    monkeypatch.setattr(source, "_list_kept", note_ranges)
    got = answer()
    assert read
    assert all(read)
    assert min(map(len, wanted)) > 5
    assert_close(got, wanted)
    few = warehouse.query("SELECT sum(buckets) / count(*) AS n FROM idle_row")["n"][0].as_py()
    assert few > 1.7


def assert_close(got: Any, wanted: Any) -> None:
    """Compare answers; a sum may differ in its last digits."""
    if isinstance(wanted, dict):
        assert got.keys() == wanted.keys()
        for name, value in wanted.items():
            assert_close(got[name], value)
    elif isinstance(wanted, list):
        assert len(got) == len(wanted)
        for item, other in zip(got, wanted, strict=True):
            assert_close(item, other)
    elif isinstance(wanted, float):
        assert got == pytest.approx(wanted, rel=1e-6)
    else:
        assert got == wanted


def list_kept(warehouse: Warehouse) -> list[int]:
    """Return the hours, since the first, whose rows are kept."""
    sql = "SELECT bucket FROM idle_hour WHERE shape = $shape ORDER BY ALL"
    shape = kept_rows.name_shape(warehouse.settings.idle)
    hours = warehouse.query(sql, {"shape": shape})["bucket"].to_pylist()
    return [(hour - month.START.replace(tzinfo=None)) // timedelta(hours=1) for hour in hours]


def test_who_writes_signals_or_marks_hours_forgets_their_rows(
    fleet: tuple[Warehouse, Window],
) -> None:
    warehouse, window = fleet
    day = Window(window.start, window.start + timedelta(days=1))
    idle_hours.write_hours(warehouse, day)
    before = find(warehouse, window)
    assert set(range(24)) <= set(list_kept(warehouse))
    part = Window(day.start + timedelta(hours=3, minutes=55), day.start + timedelta(hours=5))
    write_signals(warehouse, part)
    assert [hour for hour in list_kept(warehouse) if hour < 24] == [0, 1, 2, *range(5, 24)]
    naive = day.start.replace(tzinfo=None)
    with warehouse.transaction() as cursor:
        dirty.mark_hours(cursor, naive + timedelta(hours=20), naive + timedelta(hours=21))
    assert [hour for hour in list_kept(warehouse) if hour < 24] == [
        0, 1, 2, *range(5, 20), 22, 23,
    ]  # fmt: skip
    assert_close(msgspec.to_builtins(find(warehouse, window)), msgspec.to_builtins(before))


def test_holders_that_are_known_later_have_the_rows_of_their_hours(
    fleet: tuple[Warehouse, Window],
) -> None:
    """As where accounting allocates an hour and cannot write its signals."""
    warehouse, window = fleet
    wanted = find(warehouse, window)
    with warehouse.transaction() as cursor:
        cursor.execute("DELETE FROM allocation")
    idle_hours.write_hours(warehouse, window)
    write_allocations(warehouse, window)
    assert_close(msgspec.to_builtins(find(warehouse, window)), msgspec.to_builtins(wanted))


FREEZE = """
UPDATE rollup_5m SET
    act_mean = 0, act_max = 0, act_min = 0,
    power_w_min = 71, power_w_max = 71, power_w_mean = 71,
    energy_mj = CASE WHEN bucket < $known_until THEN 0 END
WHERE bucket >= $since AND bucket < $until AND hash(device) % 3 < $thirds
"""


@pytest.mark.parametrize(
    ("since", "known_until", "until", "thirds", "is_late"),
    [(36.8, 37.05, 37.05, 3, True), (20, 21, 44, 1, False)],
    ids=["over the edge of an hour that changes", "for a day after its energy was known"],
)
def test_what_is_frozen_is_frozen_in_kept_rows(  # noqa: PLR0917
    fleet: tuple[Warehouse, Window],
    since: float, known_until: float, until: float, thirds: int, is_late: bool,
) -> None:  # fmt: skip
    warehouse, window = fleet
    hours = [*window.chunks(timedelta(hours=1))]
    names = {"since": since, "known_until": known_until, "until": until}
    times = {n: window.start.replace(tzinfo=None) + timedelta(hours=h) for n, h in names.items()}
    if is_late:
        idle_hours.write_hours(warehouse, window)
    with warehouse.transaction() as cursor:
        cursor.execute(FREEZE, {**times, "thirds": thirds})
        dirty.mark_hours(cursor, *(hours[n].start.replace(tzinfo=None) for n in (35, 37)))
    if is_late:
        write_ledger(warehouse, Window(hours[35].start, hours[37].start))
    else:
        write_ledger(warehouse, window)
        for hour in hours:
            idle_hours.write_hours(warehouse, hour)
    got = find(warehouse, window)
    with warehouse.transaction() as cursor:
        idle_rows.forget_hours(cursor, *window.bounds().values())
    assert_close(msgspec.to_builtins(got), msgspec.to_builtins(find(warehouse, window)))


def test_a_pass_keeps_the_hours_that_miss_and_other_settings_read_none(
    fleet: tuple[Warehouse, Window], monkeypatch: pytest.MonkeyPatch
) -> None:
    warehouse, window = fleet
    monkeypatch.setattr(warehouse, "clock", lambda: window.end + timedelta(minutes=10))
    assert idle_hours.keep_idle_hours(warehouse) == 0  # a small fleet
    monkeypatch.setattr(idle_hours, "LEAST_DEVICES", 48)
    with warehouse.transaction() as cursor:
        idle_rows.forget_hours(cursor, *window.bounds().values())
    assert idle_hours.keep_idle_hours(warehouse) == 24
    assert list_kept(warehouse) == list(range(24, 48))
    assert idle_hours.keep_idle_hours(warehouse, most_hours=None) == 24
    assert idle_hours.keep_idle_hours(warehouse) == 0
    other = IdleSettings(threshold=0.02)
    none = source.plan_query(
        warehouse, window, other, is_bucketed=True, times=np.empty(0, dtype=np.int64)
    )
    assert none.kept_ranges == ()


def test_rows_of_hours_that_are_not_listed_are_not_read(
    fleet: tuple[Warehouse, Window], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after `kill -9` between the rows and the list of their hours."""
    warehouse, window = fleet
    day = Window(window.start, window.start + timedelta(days=1))
    idle_hours.write_hours(warehouse, day)
    replace = type(warehouse).replace

    def die(self: Warehouse, table: str, *given: Any, **named: Any) -> int:
        written = replace(self, table, *given, **named)
        if table == "idle_row":
            raise KeyboardInterrupt
        return written

    monkeypatch.setattr(type(warehouse), "replace", die)
    with pytest.raises(KeyboardInterrupt):
        idle_hours.write_hours(warehouse, day)
    assert not [hour for hour in list_kept(warehouse) if hour < 24]


def test_hours_that_change_while_their_rows_are_made_are_not_listed(
    fleet: tuple[Warehouse, Window],
) -> None:
    """As another process does that accounts in the same catalog, or keeps the same hours."""
    warehouse, window = fleet
    day = Window(window.start, window.start + timedelta(days=1))
    shape = kept_rows.name_shape(warehouse.settings.idle)

    def write_signals_meanwhile() -> Iterator[pa.Table]:
        yield from derive_rows(warehouse, day, warehouse.settings.idle)
        write_signals(warehouse, Window(day.start, day.start + timedelta(hours=3)))

    def keep_meanwhile() -> Iterator[pa.Table]:
        yield from derive_rows(warehouse, day, warehouse.settings.idle)
        idle_hours.write_hours(warehouse, Window(day.start, day.start + timedelta(hours=5)))

    for meanwhile, listed in ((write_signals_meanwhile, 3), (keep_meanwhile, 5)):
        idle_rows.write_idle_rows(warehouse, meanwhile(), day, shape)
        assert [hour for hour in list_kept(warehouse) if hour < 24] == [*range(listed, 24)]


def test_rows_without_their_data_file_are_kept_again(
    fleet: tuple[Warehouse, Window], monkeypatch: pytest.MonkeyPatch
) -> None:
    warehouse, window = fleet
    monkeypatch.setattr(warehouse, "clock", lambda: window.end + timedelta(minutes=10))
    monkeypatch.setattr(idle_hours, "LEAST_DEVICES", 48)
    idle_hours.keep_idle_hours(warehouse, most_hours=None)
    before = find(warehouse, window)
    lost = next(Path(warehouse.place.data).glob("main/idle_row/**/day=2/*.parquet"))
    lost.unlink()
    assert idle_hours.keep_idle_hours(warehouse, most_hours=None) == 48
    assert_close(msgspec.to_builtins(find(warehouse, window)), msgspec.to_builtins(before))


def test_hours_of_workloads_in_two_parts_are_those_at_once(
    fleet: tuple[Warehouse, Window],
) -> None:
    warehouse, window = fleet
    until = window.end - timedelta(minutes=20)
    halves = HourReader(warehouse, until)
    settings = warehouse.settings.idle
    later = halves.read(window.start + timedelta(hours=9, minutes=30), settings)
    both = halves.read(window.start, settings)
    whole = HourReader(warehouse, until).read(window.start, settings)

    def list_hours(frame: pl.DataFrame) -> list[tuple[Any, ...]]:
        return sorted(frame.explode("hours").rows(), key=str)

    assert list_hours(both) == list_hours(whole)
    assert 0 < len(list_hours(later)) < len(list_hours(both))
