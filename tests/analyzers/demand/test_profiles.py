"""What work is, by the kind of its owner and the rhythm of its runs."""

import pytest

from analyzers.demand.profiles import judge_profile
from analyzers.demand.rows import SimilarRuns


@pytest.mark.parametrize(
    ("kind", "runs", "run_h", "gap_h", "duty", "profile"),
    [
        ("Job", 30, 2.0, 24.0, 0.9, "retrain"),
        # A sweep of 50 runs of 2 h in four places: one begins each half hour, as regularly.
        ("Job", 50, 2.0, 0.5, 0.9, "train"),
        # One place: each begins when the one before has ended.
        ("Job", 50, 8.0, 8.0, 0.9, "train"),
        ("Job", 50, 0.5, 0.5, 0.9, "batch"),
        # An IDE in a Deployment: 4 % of its hours with work.
        ("Deployment", 1, 200.0, None, 0.04, "unknown"),
        ("Deployment", 1, 200.0, None, 0.4, "inference"),
        ("InferenceService", 1, 200.0, None, 0.04, "inference"),
        ("Notebook", 1, 200.0, None, 0.04, "build"),
    ],
)
def test_a_rhythm_is_a_clock_only_where_the_runs_rest_between(  # noqa: PLR0917
    kind: str, runs: int, run_h: float, gap_h: float | None, duty: float, profile: str
) -> None:
    spread = None if gap_h is None else 0.05
    row = SimilarRuns(
        "c", "n", kind, "w", runs, 1.0, run_h, gap_h, spread, False, 100.0, 100 * duty
    )
    assert judge_profile(row)[0] == profile
