"""Service levels from histograms: a range, a veto, and replicas that nobody needs."""

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from analyzers.services.analyzer import ServicesAnalyzer
from analyzers.services.levels import InferenceService, ServiceLevel, read_services
from analyzers.services.objectives import parse_objectives
from analyzers.sizing.analyzer import SizingAnalyzer
from analyzers.waterfall import build_waterfall
from fallow.errors import SettingsError, UsageError
from fallow.models import Finding
from fallow.protocols import Analyzer
from fallow.settings import load
from fallow.settings.service_levels import ServicesSettings
from runtime.operations.analysis import analyzer_runs
from tests.analyzers.goldens import agree
from tests.analyzers.served import QUIET, Served

GOLDEN = Path(__file__).parent / "golden"
GOOD, BAD = (80, 19, 1, 0, 0), (50, 20, 20, 10, 0)
LEVEL: dict[str, Any] = {"objectives": [{"metric": "e2e", "within": "2s", "target": 0.95}]}


def analyzer(**chosen: Any) -> ServicesAnalyzer:
    return ServicesAnalyzer(ServicesSettings.model_validate({**LEVEL, **chosen}))


def found(site: Served, **chosen: Any) -> dict[str, Finding]:
    return {f.subject.workload: f for f in analyzer(**chosen).find(site.views, site.window)}


def judged(site: Served, **chosen: Any) -> InferenceService:
    (one,) = read_services(site.views, site.window, analyzer(**chosen).settings)
    return one


def reasons(site: Served, **chosen: Any) -> list[str]:
    held = analyzer(**chosen).unjudged(site.views, site.window)
    return [reason for doubt in held for reason in doubt.reasons]


@pytest.mark.parametrize("case", sorted(p.name for p in GOLDEN.iterdir()))
def test_a_site_becomes_its_document(case: str, served: Served) -> None:
    document = json.loads((GOLDEN / case / "site.json").read_text())
    for service in document["services"]:
        served.service(**service)
    made = analyzer(**document["settings"]).find(served.views, served.window)
    agree(GOLDEN / case, made)
    fallen = build_waterfall(served.views, served.window, made)
    assert 0 < fallen.bounded().gpu_hours <= fallen.bill.gpu_hours


def test_empty_tables_give_nothing(served: Served) -> None:
    assert found(served) == {}
    assert reasons(served) == []
    assert analyzer().summary(served.views, served.window)["attained"] is None


@pytest.mark.parametrize(
    ("within", "least", "about", "most"),
    [
        ("1s", 0.70, 0.70, 0.70),  # a bound: nothing is guessed
        ("1500ms", 0.70, 0.80, 0.90),
        ("250ms", 0.0, 0.25, 0.50),
        ("5s", 1.0, 1.0, 1.0),
        ("9s", 1.0, 1.0, 1.0),
    ],
)
def test_an_objective_inside_a_bucket_is_a_range(
    within: str, least: float, about: float, most: float, served: Served
) -> None:
    served.service("chat", BAD)
    (level,) = judged(served, objectives=[{"within": within}]).levels
    assert (level.least, level.about, level.most) == pytest.approx((least, about, most))


def test_what_lies_above_the_last_bound_is_never_taken_for_kept(served: Served) -> None:
    served.service("chat", (50, 0, 0, 0, 50))
    (level,) = judged(served, objectives=[{"within": "60s"}]).levels
    assert (level.least, level.about, level.most) == (0.5, 0.5, 1.0)


def test_a_mean_alone_bounds_from_below_as_markov_says(served: Served) -> None:
    served.service("triton", (1000,), bounds=(), total_s=50.0)
    (level,) = judged(served, objectives=[{"within": "2s"}]).levels
    assert (level.least, level.most) == pytest.approx((1 - 0.05 / 2, 1.0))
    assert level.state == "met"
    assert analyzer(objectives=[{"within": "200ms"}]).vetoes(served.views, served.window)
    assert "only a mean" in reasons(served, objectives=[{"within": "200ms"}])[0]


def test_room_is_what_the_busiest_hour_leaves(served: Served) -> None:
    served.service("chat", GOOD, replicas=8)
    finding = found(served)["chat"]
    # 8 replicas at 0.12 do the work of 0.96: two at 0.7, and one to spare.
    assert (finding.details["needed"], finding.evidence) == (3, "suspected")
    assert finding.gpu_hours == pytest.approx(8 * 48 * 5 / 8)
    assert finding.recommendations[0].parameters == {"fewer_gpus": 3.0}
    assert {c.state for c in finding.recommendations[0].claims} == {"low"}


@pytest.mark.parametrize(
    ("what", "counts", "more"),
    [
        ("missed", BAD, {}),
        ("most of the budget is used", (80, 12, 5, 3, 0), {}),
        ("perhaps met", (80, 12, 3, 5, 0), {"objectives": [{"within": "3s", "target": 0.97}]}),
        ("no objective", GOOD, {"objectives": []}),
        ("too few requests", GOOD, {"least_requests": 1_000_000}),
        ("an objective of what nobody collects", GOOD,
         {"objectives": [*LEVEL["objectives"]], "slo": "e2e<=2s@95%, itl<=50ms@95%"}),
    ],
)  # fmt: skip
def test_nothing_shrinks_that_is_not_surely_well(
    what: str, counts: Any, more: dict[str, Any], served: Served
) -> None:
    slo = more.pop("slo", None)
    served.service("chat", counts, replicas=8, slo=slo)
    kinds = [f.kind for f in found(served, **more).values()]
    assert kinds == (["slo_missed"] if what == "missed" else []), what
    assert (what in {"missed", "most of the budget is used"}) or reasons(served, **more), what


def test_busy_replicas_stay(served: Served) -> None:
    served.service("chat", GOOD, replicas=8, rank={"act": 0.6, "gr_engine_active": 0.6})
    assert found(served) == {}


def test_the_owner_is_heard_before_the_settings(served: Served) -> None:
    served.service("chat", BAD, slo="e2e<=5s@99%")
    assert [level.state for level in judged(served).levels] == ["met"]
    served.service("mute", BAD, slo="fast, please")
    (misread,) = [
        s for s in read_services(served.views, served.window, analyzer().settings) if s.misread
    ]
    assert misread.keeps is not None
    assert "not like e2e<=2s@99%" in misread.keeps


def test_each_source_is_judged_by_itself(served: Served) -> None:
    served.service("chat", GOOD, replicas=8)
    served.told("chat", BAD, 8, source="istio_request_duration_milliseconds")
    assert {level.state for level in judged(served).levels} == {"met", "missed"}
    assert found(served)["chat"].kind == "slo_missed"


def test_a_missed_level_takes_back_what_others_advise(served: Served) -> None:
    served.service("slow", BAD, replicas=8)
    served.service("fine", GOOD, replicas=8)
    both: dict[str, Analyzer] = {"sizing": SizingAnalyzer(), "services": analyzer()}
    made = analyzer_runs.run_analyzers(served.views, served.window, both)
    sized = {f.subject.workload: f for f in made.findings if f.analyzer == "sizing"}
    assert sized["fine"].recommendations
    assert sized["slow"].recommendations == ()
    assert "service level is missed" in sized["slow"].details["vetoed"]
    assert sized["slow"].evidence == "suspected"
    alone = analyzer_runs.run_analyzers(served.views, served.window, {"sizing": SizingAnalyzer()})
    assert all(f.recommendations for f in alone.findings)
    guarded = analyzer_runs.run_analyzers(
        served.views, served.window, {"sizing": SizingAnalyzer()}, guards=[analyzer()]
    )
    assert [f.subject.workload for f in guarded.findings if not f.recommendations] == ["slow"]


@pytest.mark.parametrize(("last", "kept"), [(24, True), (23, False)])
def test_a_level_protects_while_somebody_asks(last: int, kept: bool, served: Served) -> None:
    served.service("slow", BAD, hours=range(last + 1))  # of 48: the last request lies a day back
    assert found(served)["slow"].kind == "slo_missed"
    assert bool(analyzer().vetoes(served.views, served.window)) is kept


def test_serving_pods_without_a_histogram_are_counted(served: Served) -> None:
    served.workload("mute", [QUIET], kind="Deployment", host={"requests_per_s": 3.0})
    (why,) = reasons(served)
    assert why.startswith("1 serving pods tell no latency histogram")


def test_explain_shows_the_counts(served: Served) -> None:
    served.service("chat", GOOD, replicas=8)
    finding = found(served)["chat"]
    (counts, pods) = [
        served.views.query(text, wanted).to_pylist()
        for _, text, wanted in analyzer().proof(finding)
    ]
    assert counts[0]["requests"] == 8 * 48 * 100
    assert counts[0]["most"] == pytest.approx(counts[0]["requests"])
    assert pods[0]["replicas"] == 8


@pytest.mark.parametrize(
    "text",
    ["", "e2e", "e2e<=2s", "e2e<=2s@100%", "e2e<=2s@40%", "e2e<=soon@95%", "e2e<=0s@95%",
     "e2e<=2s@95%,", "e2e>=2s@95%"],
)  # fmt: skip
def test_an_annotation_that_cannot_be_read_says_how_it_is_written(text: str) -> None:
    with pytest.raises(UsageError, match="not like e2e<=2s@99%"):
        parse_objectives(text)


@pytest.mark.parametrize(
    ("key", "value", "legal"),
    [
        ("services.burn", 0, "greater than 0"),
        ("services.busiest", 1.5, "less than or equal to 1"),
        ("services.objectives", [{"within": "2s", "target": 1}], "less than 1"),
        ("services.objectives", [{"within": "soon"}], "not a duration"),
    ],
)
def test_a_bad_threshold_names_the_legal_range(key: str, value: Any, legal: str) -> None:
    with pytest.raises(SettingsError, match=legal):
        load(flags={key: value})


histogram = st.lists(st.floats(0, 500), min_size=5, max_size=5)


@settings(
    max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    counts=histogram,
    others=histogram,
    ends=st.tuples(st.floats(0.01, 20), st.floats(0.01, 20)).map(sorted),
    replicas=st.integers(1, 6),
    rank=st.floats(0, 1),
)
def test_attainment_is_a_share_that_rises_with_the_objective(  # noqa: PLR0917
    make_served: Any,
    counts: list[float],
    others: list[float],
    ends: list[float],
    replicas: int,
    rank: float,
) -> None:
    """And whatever is claimed is of the ledger's low and idle hours."""
    site = make_served()
    site.service("a", counts, replicas=replicas, hours=range(3),
                 rank={"act": rank, "gr_engine_active": rank})  # fmt: skip
    site.told("a", others, replicas, (0.3, 1.1, 4.0, 8.0), hours=range(3, 6))
    held: list[ServiceLevel] = []
    for end in ends:
        within = timedelta(seconds=end)
        levels = judged(site, objectives=[{"within": within}], least_requests=1).levels
        held += levels
        for level in levels:
            assert 0 <= level.least <= level.about + 1e-9
            assert level.about <= level.most + 1e-9 <= 1 + 2e-9
    if len(held) == 2:
        assert held[0].least <= held[1].least + 1e-9
        assert held[0].about <= held[1].about + 1e-9
        assert held[0].most <= held[1].most + 1e-9
    made = analyzer(objectives=[{"within": "20s", "target": 0.5}], least_requests=1).find(
        site.views, site.window
    )
    fallen = build_waterfall(site.views, site.window, made)
    assert fallen.bounded().gpu_hours <= fallen.bill.gpu_hours
    claims = [c for f in made for a in f.recommendations for c in a.claims]
    ledger = {
        r["state"]: r["h"]
        for r in site.views.query(
            "SELECT state, sum(gpu_seconds) / 3600 AS h FROM ledger GROUP BY ALL"
        ).to_pylist()
    }
    for claim in claims:
        assert claim.state in {"low", "idle"}
        assert claim.gpu_hours <= ledger[claim.state]
