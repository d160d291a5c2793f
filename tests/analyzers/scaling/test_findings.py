"""What is lost by size: against the smallest of the family, and never more than the ledger has."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from analyzers.scaling.analyzer import ScalingAnalyzer
from analyzers.scaling.families import strip_run_suffix
from analyzers.waterfall import build_waterfall
from fallow.errors import SettingsError
from fallow.models import Finding
from fallow.settings import load
from fallow.settings.service_levels import ScalingSettings
from tests.analyzers.goldens import agree
from tests.analyzers.stepped import Stepped

GOLDEN = Path(__file__).parent / "golden"


def found(site: Stepped, **chosen: Any) -> dict[str, Finding]:
    made = ScalingAnalyzer(ScalingSettings(**chosen)).find(site.views, site.window)
    return {f.subject.workload: f for f in made}


def reasons(site: Stepped) -> dict[str, str]:
    held = ScalingAnalyzer().unjudged(site.views, site.window)
    return {doubt.subject.workload: doubt.reasons[0] for doubt in held}


@pytest.mark.parametrize("case", sorted(p.name for p in GOLDEN.iterdir()))
def test_a_site_becomes_its_document(case: str, stepped: Stepped) -> None:
    for job in json.loads((GOLDEN / case / "site.json").read_text())["jobs"]:
        stepped.job(**job)
    made = ScalingAnalyzer().find(stepped.views, stepped.window)
    agree(GOLDEN / case, made)
    fallen = build_waterfall(stepped.views, stepped.window, made)
    assert 0 < fallen.bounded().gpu_hours <= fallen.bill.gpu_hours


def test_empty_tables_give_nothing(stepped: Stepped) -> None:
    assert found(stepped) == {}
    assert reasons(stepped) == {}


def test_efficiency_is_throughput_per_gpu_over_that_of_the_smallest(stepped: Stepped) -> None:
    stepped.job("llm-1", 1, 1000.0)
    stepped.job("llm-2", 4, 3600.0)
    stepped.job("llm-3", 16, 9600.0)
    (finding,) = found(stepped).values()  # 0.9 on four is enough
    assert finding.details["sizes"][0]["efficiency"] == pytest.approx(0.6)
    assert finding.gpu_hours == pytest.approx(16 * 48 * 0.4)
    assert finding.evidence == "confirmed"
    claims = finding.recommendations[0].claims
    assert sum(c.gpu_hours for c in claims) == pytest.approx(finding.gpu_hours)


@pytest.mark.parametrize(
    ("what", "big", "evidence"),
    [
        ("few hours", {"work": 4000.0, "hours": (0, 3)}, "suspected"),
        ("steps alone", {"steps": 0.5}, "suspected"),
        ("it counts other ranks", {"work": 4000.0, "world_size": 4}, "suspected"),
        ("enough", {"work": 4000.0, "world_size": 8}, "confirmed"),
        ("ranks add up", {"per_rank": 4000.0}, "confirmed"),
    ],
)
def test_what_is_confirmed(what: str, big: dict[str, Any], evidence: str, stepped: Stepped) -> None:
    small: dict[str, Any] = {"steps": 1.0} if "steps" in big else {"work": 1000.0}
    stepped.job("llm-1", 1, **small)
    stepped.job("llm-2", 8, **big)
    (finding,) = found(stepped).values()
    assert (finding.evidence, finding.details["sizes"][0]["efficiency"]) == (evidence, 0.5), what


@pytest.mark.parametrize(
    ("what", "big"),
    [
        ("scales well", {"work": 7000.0}),
        ("better than linear", {"work": 12_000.0}),
        ("another unit", {"work": 4000.0, "unit": "samples"}),
        ("another model", {"work": 4000.0, "model": "A100-80GB"}),
        ("a rank is silent", {"per_rank": 1000.0, "gpus_per_pod": 4, "told": 1}),
        ("part of an hour", {"work": 4000.0, "hours": (0, 0)}),
    ],
)
def test_no_finding(what: str, big: dict[str, Any], stepped: Stepped) -> None:
    stepped.job("llm-1", 1, 1000.0)
    stepped.job("llm-2", 8, **big)
    assert found(stepped) == {}, what


def test_an_owner_may_say_which_jobs_are_alike(stepped: Stepped) -> None:
    stepped.job("tiny", 1, 1000.0, kind="Job", family="base")
    stepped.job("huge", 8, 4000.0, family="base")
    stepped.job("other", 8, 4000.0)
    assert set(found(stepped)) == {"huge"}
    assert reasons(stepped) == {
        "other": "its like was seen on 8 GPUs only: efficiency needs two sizes"
    }


def test_jobs_that_tell_nothing_are_counted(stepped: Stepped) -> None:
    stepped.job("mute", 16, told=0)
    assert reasons(stepped)["c"].startswith("1 distributed jobs tell no throughput")


def test_explain_shows_the_paces(stepped: Stepped) -> None:
    stepped.job("llm-1", 1, 1000.0)
    stepped.job("llm-2", 8, 4000.0)
    (finding,) = found(stepped).values()
    ((_, text, wanted),) = ScalingAnalyzer().proof(finding)
    rows = stepped.views.query(text, wanted).to_pylist()
    assert [(r["gpus"], r["hours"], r["work_per_s"]) for r in rows] == [
        (1, 48, 1000.0),
        (8, 48, 4000.0),
    ]


@pytest.mark.parametrize(
    ("name", "family"),
    [
        ("pretrain-12", "pretrain"), ("llama-7b", "llama-7b"), ("llama-13b-2", "llama-13b"),
        ("sweep-3f9a1c2d-1", "sweep"), ("7", "7"), ("llm-train", "llm-train"),
        ("facade", "facade"), ("x-facade", "x-facade"),
    ],
)  # fmt: skip
def test_a_name_without_its_run(name: str, family: str) -> None:
    assert strip_run_suffix(name) == family


@pytest.mark.parametrize(
    ("key", "value", "legal"),
    [
        ("scaling.efficiency", 0, "greater than 0"),
        ("scaling.least_hours", 0, "greater than or equal to 1"),
        ("prometheus.step_metrics", [{"name": "x", "column": "y"}], "steps_per_s"),
    ],
)
def test_a_bad_setting_names_what_is_legal(key: str, value: Any, legal: str) -> None:
    with pytest.raises(SettingsError, match=legal):
        load(flags={key: value})


jobs = st.lists(
    st.tuples(
        st.sampled_from([1, 2, 4, 8]), st.floats(0.1, 1e5), st.integers(0, 20), st.integers(1, 28)
    ),
    min_size=1,
    max_size=5,
)


@settings(
    max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(jobs=jobs, threshold=st.floats(0.05, 1))
def test_never_more_than_the_ledger_has(
    make_stepped: Any, jobs: list[tuple[int, float, int, int]], threshold: float
) -> None:
    site = make_stepped()
    for number, (gpus, work, begin, length) in enumerate(jobs):
        site.job(f"j-{number}", gpus, work, hours=(begin, begin + length))
    made = list(found(site, efficiency=threshold).values())
    fallen = build_waterfall(site.views, site.window, made)
    assert fallen.bounded().gpu_hours <= fallen.bill.gpu_hours
    for finding in made:
        held = site.views.query(
            "SELECT sum(gpu_seconds) / 3600 AS h FROM ledger WHERE workload = $w",
            {"w": finding.subject.workload},
        ).to_pylist()[0]["h"]
        assert 0 <= finding.gpu_hours <= held + 1e-6
        assert all(0 <= size["efficiency"] <= 1 for size in finding.details["sizes"])
        claimed = sum(c.gpu_hours for a in finding.recommendations for c in a.claims)
        assert claimed <= finding.gpu_hours + 1e-4
