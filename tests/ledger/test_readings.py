"""The SQL that reads signals: each rule on both sides of its limit, over rows written by hand."""

from datetime import datetime, timedelta
from functools import cache
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pytest

from fallow.tables import Batch
from tests import engine
from warehouse.signals.readings import read_readings
from warehouse.snapshot_reader import SnapshotReader
from warehouse.steps import ACTIVE_SAMPLE, compose_query, load_step

T = datetime(2026, 11, 1)  # noqa: DTZ001  (tables hold naive UTC)
ALL = {"act_n": 10, "act_mean": 0.0, "act_max": 0.0, "idle_s": 300.0}
SPIN = {
    "act_n": 10, "act_mean": 1.0, "act_max": 1.0, "busy_s": 300.0, "gr_engine_active_mean": 1.0,
    "gr_engine_active_n": 10, "gr_engine_active_max": 1.0, "tensor_active_max": 0.0,
    "dram_active_max": 0.0,
}  # fmt: skip
RULES = {
    "since": T, "until": T + timedelta(hours=1), "threshold": 0.02, "exit_threshold": 0.1,
    "exit_samples": 3, "spin_engine": 0.875, "spin_tensor": 0.0078125, "spin_dram": 0.0625,
    "spin_sm": 0.25, "spin_bps": 1e6, "spin_tdp": 0.3, "peak_tensor": 0.5, "peak_fp32": 0.8,
    "peak_dram": 0.9, "first_device": "", "last_device": "~",
}  # fmt: skip

BANDS = pl.DataFrame(
    {
        "gpu_model": ["H100", "H100"],
        "hour": [T - timedelta(hours=1), T],
        "band_w": [60.0, 70.0],
        "band": ["prior", "learned"],
    }
)

TABLES = ("allocation", "device", "rollup_1h", "rollup_5m", "sample")


@cache
def _engine() -> duckdb.DuckDBPyConnection:
    return engine.empty()


def fill(tables: dict[str, list[dict[str, Any]]]) -> duckdb.DuckDBPyConnection:
    """Return an engine with these rows and no others."""
    made = _engine()
    for table in TABLES:
        made.execute(f'DELETE FROM "{table}"')
    for table, rows in tables.items():
        names = {name for row in rows for name in row}
        batch = Batch.of(table, {n: [row.get(n) for row in rows] for n in names})
        made.register("incoming", batch.rows)
        made.execute(f'INSERT INTO "{table}" BY NAME SELECT * FROM incoming')
        made.unregister("incoming")
    return made


def query(made: Any, sql: str, **parameters: Any) -> list[dict[str, Any]]:
    """Return rows; parameters that the query does not name are left out."""
    named = {n: v for n, v in parameters.items() if f"${n}" in sql}
    table: pa.Table = made.execute(sql, named).to_arrow_table()
    rows: list[dict[str, Any]] = table.to_pylist()
    return rows


def bucket(**columns: Any) -> dict[str, Any]:
    base = {"cluster": "c", "device": "d", "node": "n", "bucket": T, "namespace": "", "pod": ""}
    return {**base, "interval_s": 30.0, **columns}


def device(**columns: Any) -> dict[str, Any]:
    base = {"cluster": "c", "device": "d", "node": "n", "weight": 1.0, "gpu_model": "H100"}
    return {**base, "first_seen": T, "last_seen": T + timedelta(hours=1), **columns}


def read(
    rows: list[dict[str, Any]], allocations: Any = (), of: dict[str, Any] | None = None, **how: Any
) -> list[dict[str, Any]]:
    tables = {"rollup_5m": rows, "device": [of or device()]}
    made = fill({**tables, "allocation": list(allocations)} if allocations else tables)
    found, _ = read_readings(SnapshotReader(made), {**RULES, **how}, BANDS, {"H100": 700.0})
    return found.to_dicts()


def read_one(columns: dict[str, Any], **how: Any) -> dict[str, Any]:
    (row,) = read([bucket(**columns)], **how)
    return row


@pytest.mark.parametrize(
    ("columns", "kind", "active"),
    [
        (ALL, 1, False),
        ({**ALL, "act_max": 0.02}, 1, False),
        ({**ALL, "act_mean": 0.021, "act_max": 0.021}, 3, True),  # all may be above
        # Beside the greatest less than two exits (0.2), of fewer readings than there are.
        ({**ALL, "act_n": 20, "act_max": 0.5, "act_mean": 0.699 / 20}, 1, True),
        ({**ALL, "act_n": 20, "act_max": 0.5, "act_mean": 0.701 / 20}, 3, True),
        ({**ALL, "act_max": 0.5, "act_mean": 0.0699}, 3, True),  # ten readings of 0.02
        ({**ALL, "act_max": 0.5, "act_mean": 0.0659}, 1, True),  # 0.159
        ({**ALL, "act_n": 9, "act_max": 0.5, "act_mean": 0.659 / 9}, 1, True),  # 8 of 9
        ({**ALL, "act_n": 8, "act_max": 0.5, "act_mean": 0.659 / 8}, 3, True),  # 8 of 8
        ({**ALL, "act_max": 0.09, "act_mean": 0.0249}, 1, True),  # none reached the exit: 8 of 10
        ({**ALL, "act_max": 0.09, "act_mean": 0.09}, 3, True),  # all between
        ({**ALL, "act_n": 1, "act_max": 0.5, "act_mean": 0.5}, 3, True),
        ({**ALL, "conflict_s": 0.5}, 4, False),
        ({"blind_s": 300.0}, 0, False),
        ({"act_n": 10, "act_mean": 0.0, "act_max": 0.0}, 0, False),
        ({"idle_s": 300.0}, 1, False),  # without an activity: as the seconds say
        ({"idle_s": 299.0, "low_s": 1.0}, 3, True),
        ({"idle_s": 299.0, "busy_s": 1.0}, 3, True),
        ({"low_s": 1.0, **ALL, "idle_s": 0.0}, 1, False),
        ({"busy_s": 1.0, **ALL, "idle_s": 0.0}, 1, False),
    ],
)
def test_the_kind_of_a_bucket(columns: dict[str, Any], kind: int, *, active: bool) -> None:
    row = read_one(columns)
    assert (row["kind"], row["active"]) == (kind, active), columns


HOT = {
    **ALL, "act_mean": 0.05, "act_max": 0.5, "conflict_s": 30.0, "blind_s": 1.0,
    "power_w_max": 351.0, "mem_used_bytes_max": 1, "gr_engine_active_n": 5,
    "gr_engine_active_max": 0.011,
}  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "hot_s", "kind"),
    [
        ({}, 30, 3),
        ({"power_w_max": 350.0}, 0, 4),
        ({"mem_used_bytes_max": 0}, 0, 4),
        ({"mem_used_bytes_max": None}, 30, 3),
        ({"gr_engine_active_max": 0.01}, 0, 4),
        ({"gr_engine_active_n": 0}, 30, 3),
        ({"act_max": 0.0, "act_mean": 0.0}, 30, 4),
        ({"conflict_s": None}, 0, 1),
    ],
)
def test_zeros_at_high_power_are_hot(changes: dict[str, Any], hot_s: float, kind: int) -> None:
    row = read_one({**HOT, **changes})
    assert (row["hot_s"], row["kind"]) == (hot_s, kind)
    assert row["unknown_s"] == (31.0 if "conflict_s" not in changes else 1.0)


@pytest.mark.parametrize(
    ("changes", "spins"),
    [
        ({}, True),
        ({"gr_engine_active_mean": 0.875}, True),
        ({"gr_engine_active_mean": 0.87}, False),
        ({"gr_engine_active_mean": 0.1, "gpu_util_pct_mean": 87.5}, True),
        ({"gr_engine_active_mean": None, "gpu_util_pct_mean": 87.0}, False),
        ({"gr_engine_active_mean": None}, False),
        ({"tensor_active_max": 0.0078125}, False),
        ({"tensor_active_max": None}, False),
        ({"dram_active_max": 0.0625}, False),
        ({"dram_active_max": None}, False),
        ({"sm_active_max": 0.25}, False),
        ({"sm_active_max": 0.24}, True),
        ({"fp32_active_max": 0.0078125}, False),
        ({"fp32_active_max": 0.007}, True),
        ({"pcie_bps_max": 1e6}, False),
        ({"nvlink_bps_max": 1e6, "pcie_bps_max": 0.0}, False),
        ({"nvlink_bps_max": 9e5, "pcie_bps_max": 9e5}, True),
        ({"power_w_mean": 210.0}, False),
        ({"power_w_mean": 209.0}, True),
    ],
)
def test_a_device_spins_where_every_unit_that_is_measured_rests(
    changes: dict[str, Any], *, spins: bool
) -> None:
    assert read_one({**SPIN, **changes})["spins"] == spins


def test_power_says_nothing_about_an_instance_of_its_gpu() -> None:
    hot = {**SPIN, "power_w_mean": 600.0, "power_w_max": 600.0, "energy_mj": 5.0, "conflict_s": 9.0}
    whole, part = read_one(hot), read_one(hot, of=device(parent="G"))
    assert (whole["power_w"], whole["energy_mj"], whole["spins"]) == (600.0, 5.0, False)
    assert (part["power_w"], part["energy_mj"], part["spins"]) == (None, None, True)
    assert (whole["band_w"], whole["band"]) == (70.0, "learned")
    assert (part["band_w"], part["band"], part["hot_s"]) == (None, None, 0.0)
    later = read_one({**hot, "bucket": T + timedelta(minutes=55)})
    assert later["band_w"] == 70.0
    before = read_one({**hot, "bucket": T - timedelta(minutes=5)}, since=T - timedelta(hours=1))
    assert (before["band_w"], before["band"]) == (60.0, "prior")
    other = read_one(hot, of=device(gpu_model="another"))
    assert (other["band_w"], other["hot_s"]) == (None, 0.0)


@pytest.mark.parametrize(
    ("columns", "effective"),
    [
        ({"tensor_active_mean": 0.25}, 0.5),
        ({"tensor_active_mean": 0.1, "fp32_active_mean": 0.4}, 0.5),
        ({"tensor_active_mean": 0.1, "dram_active_mean": 0.45}, 0.5),
        ({"tensor_active_mean": 0.9}, 1.0),
        ({"sm_active_mean": 0.3, "fp32_active_mean": 0.8}, 0.3),
        ({}, None),
    ],
)
def test_the_effective_utilisation_is_the_greatest_share_of_a_peak(
    columns: dict[str, Any], effective: float | None
) -> None:
    assert read_one({**ALL, **columns})["effective"] == (effective and pytest.approx(effective))


def allocation(start: float, end: float, pod: str = "p", name: str = "d") -> dict[str, Any]:
    at = [T + timedelta(minutes=m) for m in (start, end)]
    base = {"cluster": "c", "device": name, "namespace": "ns", "pod": pod, "pod_uid": pod}
    return {**base, "start": at[0], "end": at[1], "share": 1.0}


def holds(*allocations: dict[str, Any], minutes: int = 30) -> list[tuple[bool, int]]:
    rows = [bucket(**ALL) | {"bucket": T + timedelta(minutes=m)} for m in range(0, minutes, 5)]
    found = read(rows, allocations)
    found.sort(key=lambda row: row["bucket"])
    return [(row["allocated"], row["hold"]) for row in found]


def test_a_bucket_is_allocated_while_a_pod_holds_the_device_in_any_part_of_it() -> None:
    no, yes = [(False, 0)], True
    assert holds(minutes=10) == no * 2
    assert holds(allocation(5, 15)) == [(False, 0), (yes, 2), (yes, 2), *[(False, 4)] * 3]
    assert holds(allocation(7, 18)) == [
        (False, 0), (yes, 1), (yes, 2), (yes, 3), (False, 4), (False, 4),
    ]  # fmt: skip
    other = allocation(0, 60, name="another")
    assert holds(other) == no * 6
    assert holds(allocation(-30, 0)) == no * 6
    assert holds(allocation(60, 90)) == no * 6


def test_one_pod_after_another_is_another_hold() -> None:
    both = holds(allocation(0, 10), allocation(10, 90, "q"))
    assert [hold for _, hold in both] == [2, 2, 4, 4, 4, 4]
    assert all(allocated for allocated, _ in both)
    apart = holds(allocation(0, 10), allocation(5, 90, "q"))
    assert [hold for _, hold in apart] == [2, 4, 6, 6, 6, 6]


def test_the_pods_of_a_shared_device_are_streams_of_their_own() -> None:
    rows = [bucket(**ALL, sharers=n, namespace="ns", pod=p) for n, p in ((2, "p"), (2, "q"))]
    assert sorted(row["stream"] for row in read(rows)) == [1, 2]
    alone = [bucket(**ALL, sharers=1, namespace="ns", pod=p) for p in "pq"]
    assert [row["stream"] for row in read(alone)] == [1, 1]
    outside = [bucket(**ALL) | {"bucket": T + timedelta(minutes=m)} for m in (-5, 0, 55, 60)]
    assert [row["at_us"] for row in sorted(read(outside), key=lambda r: r["at_us"])] == [
        int((T - datetime(1970, 1, 1)).total_seconds() + 60 * m) * 1_000_000  # noqa: DTZ001
        for m in (0, 55)
    ]
    (bare,) = read([bucket(bucket=T, interval_s=None, blind_s=300.0)])
    assert (bare["interval_s"], bare["sample_count"], bare["unknown_s"]) == (60.0, 0, 300.0)
    assert (bare["idle_s"], bare["low_s"], bare["busy_s"]) == (0.0, 0.0, 0.0)


def test_owners_are_numbered_by_device_and_name() -> None:
    names = [("d", "b", "a"), ("c", "a", "x"), ("d", "", ""), ("d", "a", "x")]
    rows = [bucket(**ALL, device=d, namespace=n, pod=p) for d, n, p in names]
    made = fill({"rollup_5m": rows, "device": [device()]})
    found, owners = read_readings(SnapshotReader(made), RULES, BANDS, {"H100": 700.0})
    ordered = [("c", "a", "x"), ("d", "", ""), ("d", "a", "x"), ("d", "b", "a")]
    assert owners.select("device", "namespace", "pod").rows() == ordered
    assert found.select("owner", "stream").rows() == [(0, 1), (1, 2), (2, 2), (3, 2)]


@pytest.mark.parametrize(
    ("columns", "activity"),
    [
        *(({name: 0.25}, 0.25) for name in (
            "gr_engine_active", "sm_active", "tensor_active", "fp64_active", "fp32_active",
            "fp16_active", "dram_active",
        )),
        *(({name: 25.0}, 0.25) for name in (
            "gpu_util_pct", "enc_util_pct", "dec_util_pct", "mem_copy_util_pct",
        )),
        ({"gr_engine_active": 0.1, "gpu_util_pct": 30.0, "sm_active": 0.2}, 0.3),
        ({"power_w": 500.0}, None),
    ],
)  # fmt: skip
def test_the_activity_of_a_sample_is_the_greatest_of_its_units(
    columns: dict[str, float], activity: float | None
) -> None:
    made = fill({"sample": [{"cluster": "c", "device": "d", "node": "n", "ts": T, **columns}]})
    (row,) = query(made, compose_query((ACTIVE_SAMPLE,)))
    assert row["activity"] == (activity and pytest.approx(activity))


def hour(**columns: Any) -> dict[str, Any]:
    base = {"act_max": 0.0, "power_w_mean": 70.4, "power_w_n": 9, "mem_used_bytes_max": 2**29}
    return bucket(**{**base, **columns})


@pytest.mark.parametrize(
    ("columns", "of", "expected"),
    [
        ({}, {}, [(70, 9)]),
        ({"power_w_mean": 70.6}, {}, [(71, 9)]),
        ({"power_w_mean": 9000.0}, {}, [(2047, 9)]),
        ({"act_max": 0.009}, {}, [(70, 9)]),
        ({"act_max": 0.01}, {}, []),
        ({"conflict_s": 0.0}, {}, [(70, 9)]),
        ({"conflict_s": 1.0}, {}, []),
        ({"power_w_n": 1}, {}, [(70, 1)]),
        ({"power_w_n": 0}, {}, []),
        ({"mem_used_bytes_max": 2**28}, {}, []),
        ({"mem_used_bytes_max": 2**28 + 1}, {}, [(70, 9)]),
        ({"mem_used_bytes_max": None}, {}, [(70, 9)]),
        ({}, {"parent": "G"}, []),
        ({}, {"gpu_model": None}, []),
        ({"bucket": T - timedelta(hours=1)}, {}, []),
        ({"bucket": T + timedelta(hours=1)}, {}, []),
    ],
)
def test_idle_power_is_learned_from_idle_devices_with_a_context(
    columns: dict[str, Any], of: dict[str, Any], expected: list[tuple[int, int]]
) -> None:
    made = fill({"rollup_1h": [hour(**columns)], "device": [device(**of)]})
    rows = query(made, load_step("signals/idle_watts"), least_work=0.01, **RULES)
    assert [(row["watts"], row["readings"]) for row in rows] == expected
