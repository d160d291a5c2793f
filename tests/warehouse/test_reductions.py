"""The reductions answer exactly, keep their bound, and compile for engines other than ours."""

import math
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fallow import tables
from warehouse import reductions

RULES = reductions.ActivityThresholds()
FIVE = reductions.roll("rollup_5m", "roll")
ACTIVITIES = st.lists(
    st.one_of(st.sampled_from([0.0, 0.05, 0.1, 1.0]), st.floats(0, 1, width=32)),
    min_size=1,
    max_size=60,
)


def expressions() -> dict[str, Any]:
    gathered = reductions.gathered_5m(
        reductions.look(), reductions.model(), reductions.piece(), RULES
    )
    return {
        "gathered_5m": gathered,
        "rolled_5m": reductions.rolled_5m(reductions.like(gathered, "gathered")),
        "rolled_1h": reductions.rolled_1h(FIVE),
        "mean_activity": reductions.mean_activity(FIVE, "cluster", "namespace"),
        "idle_devices": reductions.idle_devices(FIVE, RULES, buckets=24, coverage=0.9),
        "pooled_percentile": reductions.pooled_percentile(FIVE, 0.95, "cluster"),
    }


@pytest.mark.parametrize("dialect", ["duckdb", "trino", "clickhouse"])
@pytest.mark.parametrize("name", list(expressions()))
def test_every_reduction_compiles_elsewhere(name: str, dialect: str) -> None:
    assert "SELECT" in reductions.sql(expressions()[name], dialect)


@pytest.mark.parametrize("name", ["rolled_5m", "rolled_1h"])
def test_rollups_have_their_tables_columns(name: str) -> None:
    table = "rollup_5m" if name == "rolled_5m" else name.replace("rolled", "rollup")
    wanted = {c.name for c in tables.columns(table)}
    if name == "rolled_5m":
        wanted.remove("cluster")  # looks are gathered of one cluster, which the caller knows
    assert set(expressions()[name].columns) == wanted


def rolls(**columns: list[Any]) -> pa.Table:
    n = max(len(v) for v in columns.values())
    data = {"cluster": ["c"] * n, "device": [f"g{i}" for i in range(n)], "namespace": ["n"] * n}
    return tables.Batch.of(
        "rollup_5m",
        {**data, "pod": [""] * n, "bucket": np.arange(n).astype("datetime64[us]"), **columns},
    ).rows


def answer(expression: Any, rows: pa.Table) -> list[dict[str, Any]]:
    connection = duckdb.connect()
    connection.register("stored", rows)
    connection.execute("CREATE VIEW roll AS SELECT * FROM stored")
    found: list[dict[str, Any]] = (
        connection.execute(reductions.sql(expression)).to_arrow_table().to_pylist()
    )
    return found


def histogram(values: list[float]) -> list[int]:
    bins = [0] * reductions.BINS
    for value in values:
        bins[0 if value == 0 else math.ceil(round(value * 20, 9))] += 1
    return bins


@settings(max_examples=40)
@given(st.lists(ACTIVITIES, min_size=1, max_size=4), st.sampled_from([0.05, 0.5, 0.95, 1.0]))
def test_a_pooled_percentile_is_within_its_bound(parts: list[list[float]], share: float) -> None:
    rows = rolls(act_hist=[histogram(p) for p in parts])
    found = answer(reductions.pooled_percentile(FIVE, share, "cluster"), rows)[0]
    pooled = sorted(v for part in parts for v in part)
    exact = pooled[max(math.ceil(share * len(pooled) - 1e-9), 1) - 1]
    assert found["looks"] == len(pooled)
    assert abs(found["activity"] - exact) <= 0.025 + 1e-6


@settings(max_examples=40)
@given(ACTIVITIES)
def test_the_bin_of_a_look_holds_it(values: list[float]) -> None:
    import ibis

    looks = ibis.table({"activity": "float32"}, name="roll")
    rows = pa.table({"activity": pa.array(values, pa.float32())})
    found = [r["bin"] for r in answer(looks.select(bin=reductions._bin(looks.activity)), rows)]
    for value, which in zip(values, found, strict=True):
        low, high = (which - 1) / 20, which / 20
        assert low - 1e-6 <= value <= high + 1e-6


def test_means_are_weighted_by_looks() -> None:
    rows = rolls(act_n=[1, 9, 0], act_mean=[1.0, 0.0, None], gpu_util_pct_n=[0, 0, 0])
    found = answer(reductions.mean_activity(FIVE, "cluster", "namespace"), rows)
    assert found == [
        {
            "cluster": "c",
            "namespace": "n",
            "looks": 10,
            "activity": pytest.approx(0.1),
            "gpu_util_pct": None,
        }
    ]


def test_idle_needs_silence_coverage_and_no_doubt() -> None:
    cases = {
        "idle": (0.02, 300.0, 0.0, 0.0),
        "worked": (0.5, 200.0, 0.0, 0.0),
        "hardly seen": (0.0, 30.0, 0.0, 0.0),
        "contradicted": (0.0, 290.0, 10.0, 0.0),
        "blind": (None, 0.0, 0.0, 300.0),
    }
    act, idle, conflict, blind = zip(*cases.values(), strict=True)
    rows = rolls(
        device=list(cases),
        act_max=list(act),
        idle_s=list(idle),
        conflict_s=list(conflict),
        blind_s=list(blind),
    )
    found = answer(reductions.idle_devices(FIVE, RULES, buckets=1, coverage=0.9), rows)
    assert [r["device"] for r in found] == ["idle"]
