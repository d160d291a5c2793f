"""At which evaluations a decision about a case may change."""

from typing import Any

import hypothesis.strategies as st
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given

from actions.backtest.case_rows import CaseRows
from actions.policy.model import Policy, ReversalLimit

DAY_US = 86_400_000_000


def build_rows(wanted: list[float | None] | None, mark: list[int]) -> pa.Table:
    """Return one case of one GPU that grows by a day at each evaluation."""
    count = len(mark)
    data: dict[str, Any] = {
        "case": [0] * count,
        "k": list(range(count)),
        "mark": mark,
        **{n: ["x"] * count for n in ("cluster", "namespace", "workload_kind", "workload", "kind")},
        "evidence": ["confirmed"] * count,
        "confidence": [1.0] * count,
        "coverage": [1.0] * count,
        "gpu_hours": [24.0 * (n + 1) for n in range(count)],
        "usd": [48.0 * (n + 1) for n in range(count)],
        "start": [0] * count,
        "end": [DAY_US * (n + 1) for n in range(count)],
    }
    if wanted is not None:
        data["wanted"] = pa.array(wanted, pa.float64())
    return pa.table(data)


@pytest.mark.parametrize(
    ("wanted", "mark", "expected"),
    [
        ([0.01, 0.02, 0.03, 0.05], [0, 0, 0, 0], [0]),
        ([0.01, 0.05, 0.0501, 0.3], [0, 0, 0, 0], [0, 2]),
        ([0.3, 0.06, 0.05, 0.04], [0, 0, 0, 0], [0, 2]),
        ([None, None, 0.01, 0.02], [0, 0, 0, 0], [0, 2]),
        ([0.01, 0.02, 0.03, 0.04], [0, 0, 1, 1], [0, 2]),
        (None, [0, 1, 1, 2], [0, 1, 3]),
    ],
)
def test_a_case_is_decided_again_where_a_return_becomes_too_probable(
    wanted: list[float | None] | None, mark: list[int], expected: list[int]
) -> None:
    policy = Policy(name="p", reversals=ReversalLimit(rate=0.05))
    case_rows = CaseRows(build_rows(wanted, mark), policy, len(mark))
    assert [k for k, cases in enumerate(case_rows.at) if cases] == expected


@given(st.lists(st.sets(st.integers(0, 9), min_size=1), max_size=4))
def test_a_case_is_found_at_its_evaluations_and_until_a_gap(cases: list[set[int]]) -> None:
    case = np.repeat(np.arange(len(cases)), [len(found) for found in cases])
    k = [k for found in cases for k in sorted(found)]
    table = build_rows(None, [0]).take(pa.array([0] * len(k), pa.int64()))
    for name, values in (("case", case), ("k", k), ("workload", [f"w{n}" for n in case])):
        place = table.column_names.index(name)
        table = table.set_column(place, name, pa.array(values, table.schema.field(name).type))
    case_rows = CaseRows(table, Policy(name="p"), 10)
    places = [*zip(case.tolist(), k, strict=True)]
    for number, found in enumerate(cases):
        for turn in range(10):
            expected = places.index((number, turn)) if turn in found else None
            assert case_rows.row_at(number, turn) == expected
            if turn in found:
                missing = (later for later in range(turn, 11) if later not in found)
                assert case_rows.found_until(number, turn) == next(missing) - 1
    assert case_rows.subjects() == [("x", "x", "x", f"w{n}") for n in range(len(cases))]
