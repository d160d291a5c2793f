"""The reductions answer exactly, keep their bound, and compile for engines other than ours."""

from typing import Any

import duckdb
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
        reductions.device_samples(), reductions.model(), reductions.piece(), RULES
    )
    return {
        "gathered_5m": gathered,
        "rolled_5m": reductions.rolled_5m(reductions.like(gathered, "gathered")),
        "rolled_1h": reductions.rolled_1h(FIVE),
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


def answer(expression: Any, rows: pa.Table) -> list[dict[str, Any]]:
    connection = duckdb.connect()
    connection.register("stored", rows)
    connection.execute("CREATE VIEW roll AS SELECT * FROM stored")
    found: list[dict[str, Any]] = (
        connection.execute(reductions.sql(expression)).to_arrow_table().to_pylist()
    )
    return found


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
