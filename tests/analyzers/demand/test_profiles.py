"""What work is, by the kind of its owner and the rhythm of its runs."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from analyzers.demand.profiles import judge_profile, read_profiles, sum_profiles
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
        "c", "n", kind, "w", runs, 1.0, run_h, gap_h, spread, False, 100.0, 100.0, 100 * duty
    )
    assert judge_profile(row)[0] == profile


def test_a_service_without_a_known_hour_is_unknown_and_not_at_zero_percent(
    make_demand: Callable[..., Any],
) -> None:
    """Service a worked in 12 of 24 known hours, b has 24 unknown hours, c none: 12 / 24 = 50 %."""
    site = make_demand(days=1)
    start = site.window.start.replace(tzinfo=None)
    for name in "abc":
        site.pod(0, 24, workload_kind="Deployment", workload=f"service{name}")
    states = {"a": ["productive"] * 12 + ["idle"] * 12, "b": ["unknown"] * 24}
    site.views.rows(
        "ledger",
        [
            {
                "cluster": "c", "bucket": start + timedelta(hours=hour), "device": f"gpu-{name}",
                "namespace": "ns", "workload_kind": "Deployment", "workload": f"service{name}",
                "node": "n0", "state": state, "seconds": 3600.0, "gpu_seconds": 3600.0,
                "priced": False,
            }
            for name, listed in states.items()
            for hour, state in enumerate(listed)
        ],
    )  # fmt: skip
    profiles = {p.stem[-1]: p for p in read_profiles(site.views, site.window)}
    assert {name: (p.profile, p.duty) for name, p in profiles.items()} == {
        "a": ("inference", 0.5),
        "b": ("unknown", None),
        "c": ("unknown", None),
    }
    sums = sum_profiles(list(profiles.values()))
    assert (sums["inference"]["duty"], sums["unknown"]["duty"]) == (0.5, None)
    assert "none of its hours is known" in profiles["c"].why
