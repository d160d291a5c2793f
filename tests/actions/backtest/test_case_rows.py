"""At which evaluations a decision about a case may change, and whose rows those of a case are."""

from typing import Any

import pyarrow as pa
import pytest

from actions.backtest.case_rows import CaseRows
from actions.backtest.stepwise import StepwisePast
from actions.policy.model import Policy, ReversalLimit
from fallow.protocols import PastFindings

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


def build_past(wanted: list[float | None] | None, mark: list[int]) -> PastFindings:
    return StepwisePast(build_rows(wanted, mark), [])


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
    case_rows = CaseRows({"": build_past(wanted, mark)}, [policy], len(mark), sparse=True)
    assert [k for k, numbers in enumerate(case_rows.changes) if numbers] == expected


def test_a_service_decides_about_every_workload_at_every_evaluation() -> None:
    pasts = {name: build_past(None, [0, 0, 0]) for name in ("one", "other")}
    case_rows = CaseRows(pasts, [Policy(name="p"), Policy(name="q")], 3, sparse=False)
    assert case_rows.changes == [{0}, {0}, {0}]
    assert [[*case_rows.rows_at(0, k)] for k in range(4)] == [[0, 1], [2, 3], [4, 5], []]
    assert case_rows.count == 2
