"""The rollup's SQL files: every column of their tables, and figures known by hand."""

import math
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fallow import tables
from fallow.errors import WarehouseError
from fallow.settings.idle import LedgerSettings
from warehouse import rollup
from warehouse.owner_buckets import RolledSamples
from warehouse.owner_hours import reduce_hours
from warehouse.steps import load_step

START = datetime(2026, 11, 20, 6, 0)  # noqa: DTZ001
START_US = 1_795_154_400_000_000
HOUR = {"cluster": "test", "first": START, "last": START + timedelta(hours=1)}
ACTIVITIES = st.lists(
    st.one_of(st.sampled_from([0.0, 0.05, 0.1, 1.0]), st.floats(0, 1, width=32)),
    min_size=1,
    max_size=60,
)


def build(table: str, rows: list[dict[str, Any]], *, time: str, as_number: str) -> pa.Table:
    """Return rows of a table's shape; their time is microseconds called `as_number`."""
    return pa.table(
        {
            as_number if c.name == time else c.name: pa.array(
                [r.get(as_number if c.name == time else c.name) for r in rows],
                pa.int64() if c.name == time else tables.TYPES[c.type],
            )
            for c in tables.list_columns(table)
        }
    )


def roll_5m(samples: list[dict[str, Any]], **thresholds: float) -> pa.Table:
    """Roll samples of one cluster up: their buckets in the hour after START."""
    found = roll(duckdb.connect(), samples, **thresholds).rows
    return found.sort_by([("bucket", "ascending"), ("namespace", "ascending")])


def roll(
    connection: duckdb.DuckDBPyConnection, samples: list[dict[str, Any]], **thresholds: float
) -> RolledSamples:
    rows = [{"device": "GPU-0", "interval_s": 60.0, **row} for row in samples]
    connection.register(
        "device_sample", build("sample", rows, time="ts", as_number="at_us").combine_chunks()
    )
    connection.register(
        "model",
        pa.table(
            {
                "model": ["H100"],
                "tdp_w": pa.array([700], pa.float32()),
                "idle_context_w": pa.array([130], pa.float32()),
            }
        ),
    )
    labels = rollup.list_labels(connection, "", {})
    return rollup.roll_samples(connection, "", labels, HOUR, LedgerSettings(**thresholds))


class EqualHashes:
    """A connection whose engine gives all labels one number, weak or strong."""

    def __init__(self, *, strong: bool = False) -> None:
        self._connection = duckdb.connect()
        self._strong = strong
        self.is_used = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def execute(self, sql: str, values: dict[str, Any] | None = None) -> Any:
        weak, strong = "WHEN (false)" in sql, "WHEN (true)" in sql
        if weak or (strong and self._strong):
            sql = f"SELECT * REPLACE (7::UBIGINT AS label) FROM ({sql})"
            self.is_used = True
        return self._connection.execute(sql, values)


def build_5m(rows: list[dict[str, Any]]) -> pa.Table:
    keys = {"cluster": "test", "device": "GPU-0", "namespace": "", "pod": ""}
    return pa.Table.from_pylist(
        [{**keys, **row} for row in rows], schema=tables.get_schema("rollup_5m")
    )


def roll_1h(rows: list[dict[str, Any]]) -> pa.Table:
    """Merge rows of `rollup_5m` of the hour after START."""
    return reduce_hours(build_5m(rows), threads=1)


def query_1h(rows: list[dict[str, Any]]) -> pa.Table:
    """Merge the same rows by a GROUP BY, which says how each column of an hour is defined."""
    connection = duckdb.connect()
    connection.register("owner_hour_part", build_5m(rows))
    sql = (Path(__file__).parent / "rollup_1h.sql").read_text(encoding="utf-8")
    hours = {**HOUR, "last": START + timedelta(hours=3)}
    schema = tables.get_schema("rollup_1h")
    return connection.execute(sql, hours).to_arrow_table().select(schema.names).cast(schema)


def at(second: float) -> int:
    return START_US + round(second * 1e6)


LABELS = st.sampled_from([None, "a", "b"])
SAMPLES = st.fixed_dictionaries(
    {
        "device": st.sampled_from(["GPU-0", "GPU-1", "GPU-2"]),
        "at_us": st.integers(-5, 65).map(lambda minute: START_US + minute * 60_000_000),
        "node": LABELS,
        "model": LABELS,
        "profile": LABELS,
        "interval_s": st.sampled_from([None, 30.0, 60.0, 7200.0]),
        "mem_used_bytes": st.sampled_from([None, 1, 7]),
        "mem_free_bytes": st.sampled_from([None, 2]),
        "mem_reserved_bytes": st.sampled_from([None, 4]),
    }
)
NEWEST = """
SELECT
    device, arg_max(node, at_us) AS node, arg_max(model, at_us) AS model,
    arg_max(profile, at_us) AS profile, arg_max(interval_s, at_us) AS interval_s,
    max(mem_used_bytes + mem_free_bytes + coalesce(mem_reserved_bytes, 0)) AS memory_bytes,
    make_timestamp(min(at_us)) AS first_seen,
    make_timestamp(max(at_us + (coalesce(interval_s, 60) * 1000000)::BIGINT)) AS last_seen
FROM device_sample WHERE at_us >= epoch_us($first) AND at_us < epoch_us($last)
GROUP BY device ORDER BY device
"""


@settings(max_examples=40)
@given(st.lists(SAMPLES, min_size=1, max_size=30, unique_by=lambda r: (r["device"], r["at_us"])))
def test_a_device_has_the_newest_of_its_labels(samples: list[dict[str, Any]]) -> None:
    connection = duckdb.connect()
    found = roll(connection, samples).devices.sort_by("device")
    wanted = connection.execute(NEWEST, {n: HOUR[n] for n in ("first", "last")}).to_arrow_table()
    assert found.select(wanted.column_names).to_pylist() == wanted.to_pylist()


def test_a_step_returns_every_column_of_its_table() -> None:
    rows = {
        "rollup_5m": roll_5m([{"at_us": at(0)}]),
        "rollup_1h": roll_1h([{"bucket": START}]),
    }
    for table, found in rows.items():
        assert set(found.column_names) == {c.name for c in tables.list_columns(table)}


@settings(max_examples=15)
@given(ACTIVITIES)
def test_the_bin_of_an_activity_contains_it(activities: list[float]) -> None:
    # One sample a bucket: which of its 21 counts is 1?
    rows = roll_5m(
        [{"at_us": at(300 * k), "sm_active": a} for k, a in enumerate(activities[:12])]
    ).to_pylist()
    for activity, row in zip(activities, rows, strict=False):
        assert sum(row["act_hist"]) == row["act_n"] == 1
        number = row["act_hist"].index(1)
        assert (number - 1) / 20 - 1e-6 <= activity <= number / 20 + 1e-6


@settings(max_examples=15)
@given(
    st.dictionaries(
        st.sampled_from(
            [c.name for c in tables.list_columns("sample") if c.name.endswith(("_active", "_pct"))]
        ),
        st.floats(0, 1, width=32),
    )
)
def test_the_activity_of_rollups_is_that_of_samples(signals: dict[str, float]) -> None:
    values = {k: v * 100 if k.endswith("_pct") else v for k, v in signals.items()}
    connection = duckdb.connect()
    connection.register("sample", build("sample", [values], time="ts", as_number="at_us"))
    (sample,) = connection.execute(load_step("signals/active_sample")).to_arrow_table().to_pylist()
    (row, *_) = roll_5m([{"at_us": at(0), **values}]).to_pylist()
    assert row["act_max"] == sample["activity"]
    assert (row["act_max"] is None) == (not values)


def test_each_of_the_21_counts_is_its_own() -> None:
    # k samples in bin k, all in one bucket: 231 samples, over a second apart.
    activities = [k / 20 for k in range(21) for _ in range(k + 1)]
    rows = [{"at_us": at(1.2 * n), "sm_active": a} for n, a in enumerate(activities)]
    (first, *_) = roll_5m(rows).to_pylist()
    assert first["act_hist"] == [k + 1 for k in range(21)]


def test_a_count_of_the_histogram_is_exact_up_to_4095_samples() -> None:
    rows = [{"at_us": at(k / 14), "sm_active": 0.5, "interval_s": 1 / 14} for k in range(4095)]
    (first, *_) = roll_5m(rows).to_pylist()
    assert first["act_hist"] == [*[0] * 10, 4095, *[0] * 10]


@pytest.mark.parametrize(
    ("interval_s", "covered_s"),
    [
        (None, [75]),  # unknown: 60 s
        (-5.0, [0]),
        (0.0, [0]),
        (400.0, [300, 200]),
        (7200.0, [300] * 12),  # counts as one hour; the rest lies after the requested hour
    ],
)
def test_a_sample_is_valid_for_a_bounded_time(
    interval_s: float | None, covered_s: list[float]
) -> None:
    rows = roll_5m([{"at_us": at(0), "interval_s": interval_s, "sm_active": 0.5}])
    assert rows["covered_s"].to_pylist() == pytest.approx(covered_s)


@pytest.mark.parametrize(
    ("activity", "seconds"), [(0.1, "idle_s"), (0.2, "low_s"), (0.6, "busy_s")]
)
def test_the_thresholds_of_a_site_decide_the_class(activity: float, seconds: str) -> None:
    sample = {"at_us": at(0), "sm_active": activity}
    (row,) = roll_5m([sample], idle_threshold=0.1, low_threshold=0.6).to_pylist()
    assert row[seconds] == pytest.approx(75)


def test_two_directions_of_traffic_are_added_and_one_counts_alone() -> None:
    (row,) = roll_5m(
        [
            {"at_us": at(0), "pcie_tx_bps": 3.0, "pcie_rx_bps": 4.0, "nvlink_rx_bps": 2.0},
            {"at_us": at(60), "pcie_tx_bps": 5.0, "nvlink_rx_bps": 1.0},
        ]
    ).to_pylist()
    assert (row["pcie_bps_max"], row["nvlink_bps_max"]) == (7.0, 2.0)


def test_an_hour_merges_its_buckets() -> None:
    parts: list[dict[str, Any]] = [
        {"n": 1, "interval_s": 60.0, "act_n": 1, "act_mean": 0.25, "act_hist": [1, *[0] * 20]},
        {"n": 3, "interval_s": 20.0, "act_n": 3, "act_mean": 0.75, "act_hist": [2, *[0] * 19, 1]},
        {"n": 4, "interval_s": 20.0, "act_n": 0, "act_mean": None, "act_hist": [0] * 21},
        # Only a sample of the bucket before is valid in it: none of its own.
        {"n": 0, "interval_s": 60.0, "act_n": 0, "act_mean": None, "act_hist": [0] * 21},
    ]
    measures: list[dict[str, Any]] = [
        {"power_w_n": 1, "power_w_min": 50.0, "power_w_mean": 100.0, "power_w_max": 150.0},
        {"power_w_n": 3, "power_w_min": 60.0, "power_w_mean": 200.0, "power_w_max": 300.0},
        {"sm_clock_mhz_mean": 1000.0, "throttle_mask": 4, "energy_mj": 70, "xid_max": 79},
        {"throttle_mask": 1, "last_kernel_age_s_min": 7.0, "covered_s": 15.0, "idle_s": 15.0},
    ]
    rows = [
        {"bucket": START + timedelta(minutes=5 * k), **parts[k], **measures[k]} for k in range(4)
    ]
    (hour,) = roll_1h(rows).to_pylist()
    assert hour["bucket"] == START
    assert (hour["n"], hour["act_n"], hour["energy_mj"], hour["xid_max"]) == (8, 4, 70, 79)
    assert hour["interval_s"] == pytest.approx((1 * 60 + 3 * 20 + 4 * 20) / 8)
    assert hour["expected"] == pytest.approx(3600 / 25)
    assert hour["act_mean"] == pytest.approx((1 * 0.25 + 3 * 0.75) / 4)
    assert hour["act_hist"] == [3, *[0] * 19, 1]
    assert hour["power_w_mean"] == pytest.approx((1 * 100 + 3 * 200) / 4)
    assert (hour["power_w_n"], hour["power_w_min"], hour["power_w_max"]) == (4, 50.0, 300.0)
    assert hour["sm_clock_mhz_mean"] == 1000.0  # the buckets without a clock do not count
    assert (hour["throttle_mask"], hour["last_kernel_age_s_min"]) == (5, 7.0)
    assert (hour["covered_s"], hour["idle_s"]) == (15.0, 15.0)
    assert hour["temp_c_max"] is None


FIVE_MINUTES = st.fixed_dictionaries(
    {
        "device": st.sampled_from(["GPU-0", "GPU-1"]),
        "pod": st.sampled_from(["", "a", "b"]),
        "node": st.sampled_from([None, "n1", "n2"]),
        "bucket": st.integers(0, 35).map(lambda k: START + timedelta(minutes=5 * k)),
        "n": st.integers(0, 5),
        "interval_s": st.sampled_from([None, 30.0, 60.0]),
        "covered_s": st.floats(0, 300, width=32),
        "act_n": st.integers(0, 5),
        "act_hist": st.lists(st.integers(0, 9), min_size=21, max_size=21),
        "throttle_mask": st.sampled_from([None, 1, 4]),
        "energy_mj": st.one_of(st.none(), st.integers(0, 10**12)),
        "last_kernel_age_s_min": st.one_of(st.none(), st.floats(0, 9, width=32)),
    }
)


@settings(max_examples=40)
@given(st.lists(FIVE_MINUTES, min_size=1, max_size=40, unique_by=lambda r: (
    r["device"], r["pod"], r["bucket"])))  # fmt: skip
def test_hours_are_those_of_a_group_by(rows: list[dict[str, Any]]) -> None:
    for row in rows:
        some = row["act_n"] > 0
        row["act_min"], row["act_mean"], row["act_max"] = (
            (0.25, row["covered_s"] / 300, 0.75) if some else (None, None, None)
        )
    order = [("device", "ascending"), ("bucket", "ascending"), ("pod", "ascending")]
    found, wanted = roll_1h(rows).sort_by(order), query_1h(rows).sort_by(order)
    for name in wanted.column_names:
        ours, theirs = found[name].combine_chunks(), wanted[name].combine_chunks()
        if not pa.types.is_floating(theirs.type):
            assert ours.equals(theirs), name
            continue
        assert ours.is_null().equals(theirs.is_null()), name
        values, wanted_values = (column.fill_null(0).to_numpy() for column in (ours, theirs))
        np.testing.assert_allclose(values, wanted_values, rtol=1e-6, err_msg=name)


def test_an_hour_without_samples_of_its_own_keeps_its_interval() -> None:
    rows = [{"bucket": START, "n": 0, "interval_s": i} for i in (300.0, 600.0)]
    (hour,) = roll_1h(rows).to_pylist()
    assert (hour["n"], hour["interval_s"], hour["expected"]) == (0, 450.0, 8.0)


def test_owners_that_take_turns_within_a_bucket_have_a_row_each() -> None:
    rows = [
        {"at_us": at(60 * k), "namespace": owner, "gpu_util_pct": util, "energy_mj": counter}
        for k, (owner, util, counter) in enumerate([("a", 10, 0), ("b", 20, 100), ("a", 30, 300)])
    ]
    found = [row for row in roll_5m(rows).to_pylist() if row["n"]]
    assert [
        (r["namespace"], r["n"], r["gpu_util_pct_min"], r["gpu_util_pct_max"], r["energy_mj"])
        for r in found
    ] == [("a", 2, 10.0, 30.0, 200), ("b", 1, 20.0, 20.0, 100)]


def test_a_value_that_is_not_a_number_is_the_greatest_and_never_the_least() -> None:
    rows = [
        {"at_us": at(60 * k), "power_w": watts}
        for k, watts in enumerate([float("nan"), None, 70.0, 80.0])
    ]
    (row,) = roll_5m(rows).to_pylist()
    assert (row["power_w_n"], row["power_w_min"]) == (3, 70.0)
    assert math.isnan(row["power_w_max"])


def test_a_window_without_samples_has_no_rows() -> None:
    found = roll_5m([])
    assert found.schema.equals(tables.get_schema("rollup_5m"))
    assert not found.num_rows


TWO_OWNERS = [
    {"at_us": at(0), "pod": "a", "gpu_util_pct": 10.0},
    {"at_us": at(60), "pod": "b", "gpu_util_pct": 30.0, "node": "n1"},
    {"at_us": at(120), "namespace": "a", "device": "GPU-1"},
]


def test_labels_with_equal_hashes_get_other_numbers() -> None:
    equal = EqualHashes()
    plain, other = roll(duckdb.connect(), TWO_OWNERS), roll(equal, TWO_OWNERS)  # type: ignore[arg-type]
    assert equal.is_used
    assert plain.rows["pod"].to_pylist() == ["a", "b", ""]
    assert other.rows == plain.rows
    assert other.devices == plain.devices


def test_labels_without_distinct_numbers_are_not_rolled_up() -> None:
    with pytest.raises(WarehouseError, match="same SHA-256 hash"):
        roll(EqualHashes(strong=True), TWO_OWNERS)  # type: ignore[arg-type]
