"""Analyzers of any make side by side: one waterfall, one that refuses hides no other."""

import json
import threading
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import msgspec
import pytest

from analyzers.query_cache import cache_query
from dashboards.figures import savings
from dashboards.figures.query import Filters
from fallow import plugins
from fallow.errors import UsageError
from fallow.models import Claim, Finding, Recommendation, Subject, Unjudged, compute_finding_id
from fallow.protocols import Analyzer, Views
from fallow.settings import Settings
from fallow.tables import Batch
from fallow.window import Window
from runtime.operations.accounting import pipeline, windows
from runtime.operations.analysis import analyzer_runs, findings
from runtime.operations.analysis.explanations import explain_finding, render_explanation
from runtime.rendering import finding_tables
from runtime.rendering.tables import document
from warehouse.lake import Warehouse

START = datetime(2026, 11, 1, tzinfo=UTC)
WINDOW = Window(START, START + timedelta(hours=2))


class Found:
    """Claim every free GPU-hour of the cluster, and say what that rests on."""

    def __init__(self, name: Any = "pools") -> None:
        self.name = name if isinstance(name, str) else "pools"

    def find(self, _views: Views, window: Window) -> list[Finding]:
        owner = Subject("test", "", "NodePool", "p")
        claim = Claim("test", None, None, None, "p", "free", 100.0)
        return [
            Finding(
                id=compute_finding_id(self.name, "k", owner, window.start),
                analyzer=self.name,
                kind="k",
                subject=owner,
                window=window,
                verdict="wasteful",
                evidence="confirmed",
                confidence=1.0,
                gpu_hours=2.0,
                usd=Decimal(8),
                details={"idle_gpus": 1},
                recommendations=(
                    Recommendation("scale in", "p", "free", True, saving="cash", claims=(claim,)),
                ),
            )
        ]

    def summary(self, _views: Views, _window: Window) -> dict[str, Any]:
        return {"idle_gpus": 1}

    def unjudged(self, _views: Views, _window: Window) -> Iterable[Any]:
        from fallow.models import Unjudged  # noqa: PLC0415

        return [Unjudged(Subject("test", "ns", "Job", n), 1.5, ("dark",)) for n in ("a", "b")]


class Refusing:
    """Refuse every window."""

    def find(self, _views: Views, _window: Window) -> list[Finding]:
        raise UsageError("the window is too short")

    def unjudged(self, _views: Views, _window: Window) -> list[Any]:
        raise UsageError("the window is too short")


@pytest.fixture
def warehouse(settings: Settings) -> Any:
    """Return a warehouse whose ledger has two hours of one free GPU and one idle one."""
    rows = [
        {
            "cluster": "test", "bucket": START.replace(tzinfo=None) + timedelta(hours=hour),
            "device": device, "state": state, "namespace": space, "workload_kind": kind,
            "workload": kind.lower(), "team": "red" if space else None, "node": "n", "pool": "p",
            "model": "H100", "seconds": 3600.0, "gpu_seconds": 3600.0, "usd": Decimal(4),
            "priced": True,
        }
        for hour in range(2)
        for device, state, space, kind in (("d0", "free", "", ""), ("d1", "idle", "ns", "Job"))
    ]  # fmt: skip
    data: dict[str, object] = {name: [row[name] for row in rows] for name in rows[0]}
    with Warehouse.open_in_memory(settings, clock=lambda: WINDOW.end) as opened:
        opened.replace("ledger", Batch.of("ledger", data).rows, "true", {})
        yield opened


def test_two_that_claim_the_same_hours_save_them_once(warehouse: Warehouse) -> None:
    both = {"pools": Found("pools"), "theirs": Found("theirs")}
    made = analyzer_runs.run_analyzers(warehouse, WINDOW, both)
    saved = [f.recommendations[0].marginal_usd for f in made.findings]
    assert saved == [Decimal(8), Decimal(0)]
    assert made.waterfall.saved(saving="cash").usd == Decimal(8)
    assert made.summaries == {"pools": {"idle_gpus": 1}, "theirs": {"idle_gpus": 1}}
    text = finding_tables.render_analysis(made.ranked, made.waterfall, "table")
    assert "quick wins" in text
    assert "- pools" in text
    assert "= left" in text
    result = json.loads(
        document("waterfall", finding_tables.build_waterfall_document(made.waterfall))
    )
    assert result["bill"] == {"gpu_hours": 4.0, "usd": 16.0, "unpriced_gpu_hours": 0.0}
    assert [step["impact"] for step in result["steps"]] == ["high", "low"]


def test_findings_of_several_clusters_name_theirs(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    made = analyzer_runs.run_analyzers(warehouse, WINDOW, {"pools": Found("pools")})
    [here] = made.ranked
    subject = msgspec.structs.replace(here.finding.subject, cluster="west")
    there = msgspec.structs.replace(
        here, finding=msgspec.structs.replace(here.finding, subject=subject)
    )
    one, both = (
        finding_tables.render_analysis(ranked, made.waterfall, "table").splitlines()
        for ranked in ([here], [here, there])
    )
    heads = [next(line for line in lines if line.startswith("ID ")) for lines in (one, both)]
    assert ["CLUSTER" in head for head in heads] == [False, True]
    assert [line for line in both if " west " in line]
    assert len(heads[1]) <= 80
    assert findings.build_row(there)["cluster"] == "west"


def test_one_that_refuses_is_noted_beside_the_others_and_raises_alone(warehouse: Warehouse) -> None:
    both: dict[str, Analyzer] = {"no": Refusing(), "pools": Found()}
    made = analyzer_runs.run_analyzers(warehouse, WINDOW, both, strict=False)
    assert made.notes == ("no is withheld: the window is too short",)
    assert len(made.findings) == 1
    with pytest.raises(UsageError, match="too short"):
        analyzer_runs.run_analyzers(warehouse, WINDOW, both)


class Failing(Found):
    """Has a fault of its own."""

    def find(self, views: Views, window: Window) -> list[Finding]:
        del views, window
        raise ZeroDivisionError("division by zero")

    def unjudged(self, views: Views, window: Window) -> list[Unjudged]:
        del views, window
        raise ZeroDivisionError("division by zero")


def test_a_fault_in_one_analyzer_ends_only_that_one(
    warehouse: Warehouse, caplog: pytest.LogCaptureFixture
) -> None:
    both: dict[str, Analyzer] = {"third-party": Failing(), "pools": Found()}
    made = analyzer_runs.run_analyzers(warehouse, WINDOW, both, strict=False)
    (note,) = made.notes
    assert note.startswith("third-party is withheld: it failed (ZeroDivisionError: division by")
    assert len(made.findings) == 1
    withheld = {row.analyzer: row for row in analyzer_runs.list_unjudged(warehouse, WINDOW, both)}
    assert withheld["third-party"].reason.startswith("it failed (ZeroDivisionError")
    assert len(withheld) > 1, "the others are asked, too"
    assert "in find" in caplog.text, "the log has the traceback"
    assert [r.__dict__["analyzer"] for r in caplog.records] == ["third-party"] * 2
    with pytest.raises(ZeroDivisionError):
        analyzer_runs.run_analyzers(warehouse, WINDOW, both)


class Reading(Found):
    """Reads the warehouse for its findings and for its summary, by one function."""

    def __init__(self) -> None:
        super().__init__()
        self.read: list[Window] = []

    @cache_query
    def _hours(self, views: Views, window: Window) -> int:
        self.read.append(window)
        return views.query("SELECT count(*) AS n FROM ledger")["n"][0].as_py()  # type: ignore[no-any-return]

    def find(self, views: Views, window: Window) -> list[Finding]:
        return super().find(views, window) if self._hours(views, window) else []

    def summary(self, views: Views, window: Window) -> dict[str, Any]:
        return {"rows": self._hours(views, window)}


def test_what_was_read_for_findings_serves_their_summary_but_no_later_look(
    warehouse: Warehouse,
) -> None:
    reading = Reading()
    made = analyzer_runs.run_analyzers(warehouse, WINDOW, {"pools": reading})
    assert made.summaries == {"pools": {"rows": 4}}
    assert len(reading.read) == 1
    warehouse.replace("ledger", warehouse.query("FROM ledger LIMIT 1"), "true", {})
    again = analyzer_runs.run_analyzers(warehouse, WINDOW, {"pools": reading})
    assert again.summaries == {"pools": {"rows": 1}}
    reading.summary(warehouse, WINDOW)
    reading.summary(warehouse, WINDOW)
    assert len(reading.read) == 4, "views that remember nothing are asked each time"


def test_two_look_at_the_same_time_and_the_outcome_is_the_same(warehouse: Warehouse) -> None:
    met = threading.Barrier(2)

    class Meeting(Found):
        def find(self, views: Views, window: Window) -> list[Finding]:
            met.wait(timeout=30)  # alone it would wait in vain
            return super().find(views, window)

    meeting = {"pools": Meeting("pools"), "theirs": Meeting("theirs")}
    alone = analyzer_runs.run_analyzers(
        warehouse, WINDOW, {"pools": Found("pools"), "theirs": Found("theirs")}
    )
    both = analyzer_runs.run_analyzers(warehouse, WINDOW, meeting, at_once=2)
    assert both.ranked == alone.ranked
    assert both.summaries == alone.summaries


def test_what_is_withheld_is_summed_by_reason(warehouse: Warehouse) -> None:
    rows = analyzer_runs.list_unjudged(warehouse, WINDOW, {"no": Refusing(), "pools": Found()})
    assert [(r.analyzer, r.reason, r.gpu_hours, r.subjects) for r in rows] == [
        ("pools", "dark", 3.0, ("ns/Job/a", "ns/Job/b")),
        ("no", "the window is too short", 0.0, ()),
    ]
    assert analyzer_runs.list_unjudged(warehouse, WINDOW, {"pools": Found()}, cluster="other") == []


def test_stored_findings_say_what_they_save_of_any_window(warehouse: Warehouse) -> None:
    assert not savings.read_stages(warehouse, WINDOW, Filters()).is_analyzed
    pipeline.analyze(warehouse, WINDOW, {"theirs": Found(), "refusing": Refusing()})
    half = Window(START, START + timedelta(hours=1))
    rows = savings.read_by_owner(warehouse, half, Filters(), ["team"])
    assert rows == [{"team": "(platform)", "gpu_hours": 1.0, "usd": Decimal(4)}]
    assert savings.read_by_owner(warehouse, WINDOW, Filters(cluster="elsewhere"), ["team"]) == []


def test_a_finding_of_no_workload_is_explained_by_what_its_advice_claims(
    warehouse: Warehouse,
) -> None:
    (found,) = pipeline.analyze(warehouse, WINDOW, {"theirs": Found("theirs")}).findings
    explanation = explain_finding(warehouse, found.id)
    (query,) = explanation["queries"]
    assert [(r["state"], r["gpu_hours"], r["usd"]) for r in query["rows"]] == [
        ("free", 2.0, Decimal(8))
    ]
    assert explanation["savings"][0].startswith("2.0000 GPU-hours, $8.00 alone")
    text = render_explanation(explanation)
    assert "subject   NodePool/p in cluster test" in text
    assert "$claims = 0" in text


def test_waste_of_several_times_is_explained_with_its_sum(warehouse: Warehouse) -> None:
    (found,) = pipeline.analyze(warehouse, WINDOW, {"theirs": Found("theirs")}).findings
    assert explain_finding(warehouse, found.id)["together"] is None
    early = Window(START - timedelta(hours=3), START - timedelta(hours=1))
    twice = [found, msgspec.structs.replace(found, id="0" * 12, window=early)]
    warehouse.ingest([findings.build_rows(twice, found_at=WINDOW.end)])
    explanation = explain_finding(warehouse, found.id)
    assert explanation["together"] == "2 of 2, together $16.00, 4.0 GPU-hours"
    assert "time      2 of 2, together" in render_explanation(explanation)


def test_an_analyzer_s_own_proof_is_what_is_shown(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Proving(Found):
        def proof(self, finding: Finding) -> list[tuple[str, str, dict[str, Any]]]:
            return [("one and one", "SELECT $one + 1 AS two", {"one": len(finding.id) - 11})]

    chosen: Callable[..., Any] = lambda _settings, names: {names[0]: Proving()}  # noqa: E731
    monkeypatch.setattr(analyzer_runs, "load_analyzers", chosen)
    (found,) = pipeline.analyze(warehouse, WINDOW, {"idle": Proving("idle")}).findings
    explanation = explain_finding(warehouse, found.id)
    first = explanation["queries"][0]
    assert (first["what"], first["rows"]) == ("one and one", [{"two": 2}])
    assert findings.read(warehouse, found.id) == found


def test_the_doctor_says_what_is_withheld_from_whom(
    warehouse: Warehouse, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: dict[str, Any] = {"pools": Found()}
    monkeypatch.setattr(analyzer_runs, "load_analyzers", lambda *_: made)
    monkeypatch.setattr(windows, "choose", lambda *_, **__: (WINDOW, "2h"))
    (row,) = analyzer_runs.check_unjudged(warehouse, settings, None, now=WINDOW.end, cluster=None)
    assert (row.check, row.status) == ("withheld by pools", "warn")
    assert row.finding == "dark: 3.0 GPU-hours of ns/Job/a, ns/Job/b"
    assert row.next_step.startswith("docs/analyzers/pools.md")
    made.clear()
    (row,) = analyzer_runs.check_unjudged(warehouse, settings, None, now=WINDOW.end, cluster=None)
    assert row.status == "ok"


def test_one_that_cannot_be_loaded_hides_no_other(
    settings: Settings, warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    def load(_seam: str, name: str) -> Any:
        if name == "broken":
            raise ImportError("no module called x")
        return Found

    monkeypatch.setattr(plugins, "find_installed", lambda _seam: {"broken": None, "pools": None})
    monkeypatch.setattr(plugins, "load", load)
    made = analyzer_runs.run_analyzers(
        warehouse, WINDOW, analyzer_runs.load_analyzers(settings), strict=False
    )
    assert "no module called x" in made.notes[0]
    assert len(made.findings) == 1
    with pytest.raises(UsageError, match="cannot be loaded"):
        analyzer_runs.load_analyzers(settings, ["broken"])
