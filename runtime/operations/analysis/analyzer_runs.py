"""Run `fallow analyze`: run analyzers, recommend, apportion savings, rank by dollars."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import msgspec

from actions.recommend import add_recommendations
from analyzers.overlaps import remove_overlaps
from analyzers.query_cache import CachedViews
from analyzers.ranking import rank_findings
from analyzers.services.vetoes import apply_vetoes
from analyzers.teams import add_teams
from analyzers.waterfall import add_savings, build_waterfall, clip_finding
from collectors.doctor import CheckRow
from dashboards.figures.savings import read_handled_findings
from fallow import plugin_runs, plugins
from fallow.errors import FallowError, TemporaryError, UnreadableDaysError, UsageError
from fallow.models import Claim, Finding
from fallow.plugin_runs import PluginRun
from fallow.protocols import (
    Analyzer,
    BlocksAdvice,
    ReportsSummary,
    ReportsUnjudged,
    UnjudgedWork,
    Views,
)
from fallow.settings import Settings
from fallow.window import Window
from runtime.operations.accounting import windows
from runtime.operations.analysis import case_identity, findings
from runtime.operations.queries import load_sql
from warehouse import audit_results, audits
from warehouse.lake import Warehouse

if TYPE_CHECKING:
    from concurrent.futures import Future

    from analyzers.ranking import RankedFinding
    from analyzers.waterfall import SavingsWaterfall


PARALLEL_ANALYZERS = 2
"""Analyzers that run in parallel: one computes while the other queries."""

WITHHELD = "withheld by "
"""The check of `fallow doctor` that names an analyzer."""
MOST_NAMED = 5
"""Subjects that a line of the doctor names; the others are only counted."""


class Analysis(msgspec.Struct, frozen=True):
    """Findings by the dollars they save, their sum, and the notes beside them."""

    window: Window
    ranked: "tuple[RankedFinding, ...]"
    waterfall: "SavingsWaterfall"
    summaries: dict[str, dict[str, Any]]
    notes: tuple[str, ...] = ()
    runs: tuple[PluginRun, ...] = ()
    difference: str = ""
    """Why its findings are not those of the site; "" = they are."""

    @property
    def findings(self) -> list[Finding]:
        """Return the findings, the most expensive first."""
        return [row.finding for row in self.ranked]


AnalyzerResult = tuple[list[Finding], dict[str, Any] | None, str]
"""An analyzer's findings, its summary, and why not everything is judged; "" = everything is."""


class BrokenAnalyzer:
    """Replaces an installed analyzer whose code cannot be loaded, and reports that."""

    def __init__(self, why: str) -> None:
        self.why = why

    def find(self, _views: Views, _window: Window) -> list[Finding]:
        """Raise the error of the analyzer that cannot be loaded."""
        raise UsageError(self.why)

    def unjudged(self, _views: Views, _window: Window) -> list[UnjudgedWork]:
        """Raise the error of the analyzer that cannot be loaded."""
        raise UsageError(self.why)


class UnjudgedHours(msgspec.Struct, frozen=True):
    """What an analyzer does not judge, and why: hours and workloads per reason."""

    analyzer: str
    reason: str
    gpu_hours: float
    subjects: tuple[str, ...]


def load_analyzers(settings: Settings, names: Sequence[str] = ()) -> dict[str, Analyzer]:
    """Return the analyzers of these names (none = all), each with its group of settings.

    If all are requested, an analyzer that cannot be loaded is included and refuses every window
    with the reason.

    Raises:
        UsageError: no analyzer of a name is installed, or a named analyzer cannot be loaded.
    """
    analyzers: dict[str, Analyzer] = {}
    for name in dict.fromkeys(names or plugins.find_installed("analyzers")):
        try:
            analyzers[name] = _load_analyzer(settings, name)
        except FallowError:
            raise
        except Exception as error:
            why = f"analyzer {name!r} cannot be loaded: {error}"
            if names:
                raise UsageError(why, hint="reinstall what brings it") from error
            analyzers[name] = BrokenAnalyzer(why)
    return analyzers


def analyze(
    warehouse: "Warehouse",
    settings: Settings,
    names: Sequence[str],
    window: str | None,
    *,
    now: datetime,
    cluster: str | None,
    changes: Sequence[str] = (),
) -> Analysis:
    """Find waste in the requested window (see `windows.covered_hours`) with the named analyzers.

    Without names all analyzers run, and one that cannot judge the window is a note, not an error.
    `changes`: options by which `settings` differ from those of the site.

    Raises:
        UsageError: an unknown name, no telemetry, or a named analyzer that refuses the window.
    """
    analyzers = load_analyzers(settings, names)
    lag, every = settings.ledger.max_lag, settings.service.collect_every
    span = windows.find_covered_hours(
        warehouse, window, now, cluster, inventory=True, lag=lag, every=every
    )
    guards = (
        [a for a in load_analyzers(settings).values() if isinstance(a, BlocksAdvice)]
        if names
        else []
    )
    analysis = run_analyzers(
        warehouse,
        span.judged,
        analyzers,
        cluster=cluster,
        strict=bool(names),
        guards=guards,
        at_once=PARALLEL_ANALYZERS,
        report_unjudged=True,
    )
    fault = audits.format_banner(audit_results.read_failures(warehouse, span.window))
    notes = (*span.notes, *([fault] if fault else []), *analysis.notes)
    own = span
    if window is not None or cluster is not None:
        own = windows.find_covered_hours(warehouse, None, now, inventory=True, lag=lag, every=every)
    divided = _apportion_beside_others(warehouse, analysis, cluster, others_first=False)
    return msgspec.structs.replace(
        _continue_cases(warehouse, divided, cluster),
        notes=notes,
        difference=_find_difference(warehouse, span.judged, own.judged, names, changes),
    )


def _find_difference(
    views: Views, window: Window, own: Window, names: Collection[str], changes: Sequence[str]
) -> str:
    """Return why an analysis is not one that the service would store; "" = it would.

    Of all analyzers each GPU-hour belongs to one. What some find anew cannot be divided like that,
    so it is stored only where an analyzer has no result yet.
    """
    last = views.query(load_sql("last_runs")).to_pylist()
    until = max((row["until"] for row in last if row["until"]), default=None)
    judging = {row["analyzer"] for row in last if row["result"] == "done"}
    if changes:
        return f"{', '.join(changes)} differs from the settings"
    if names and judging.issuperset(names) and judging != {*names}:
        return f"these are of {len(judging)} analyzers together, not of {', '.join(names)} alone"
    if own.seconds < windows.DEFAULT_LENGTH.total_seconds():  # all there is: no data before it
        window = Window(max(window.start, own.start), window.end)
    if window != own:
        return f"these are of {windows.format_window(own)}"
    if until is not None and until.replace(tzinfo=UTC) > window.end:
        return f"these are of an analysis until {until:%Y-%m-%d %H:%M} UTC"
    return ""


def _continue_cases(views: Views, analysis: Analysis, cluster: str | None) -> Analysis:
    """Return an analysis with the ids of the cases; its figures are those of its window.

    What an action has freed is saved already: a finding whose action took effect saves nothing.
    """
    ids = case_identity.resolve(views, analysis.findings).ids
    names = {finding.id: case for finding, case in zip(analysis.findings, ids, strict=True)}
    handled = set(read_handled_findings(views, cluster))
    left = analysis.waterfall.remove_findings([n for n, case in names.items() if case in handled])
    steps = tuple(msgspec.structs.replace(s, finding=names[s.finding]) for s in left.steps)
    waterfall = msgspec.structs.replace(left, steps=steps)
    cases = [msgspec.structs.replace(f, id=names[f.id]) for f in analysis.findings]
    ranked = tuple(rank_findings(cases, waterfall))
    return msgspec.structs.replace(analysis, ranked=ranked, waterfall=waterfall)


def run_analyzers(
    views: Views,
    window: Window,
    analyzers: Mapping[str, Analyzer],
    *,
    cluster: str | None = None,
    strict: bool = True,
    summarise: bool = True,
    guards: Sequence[BlocksAdvice] = (),
    at_once: int = 1,
    report_unjudged: bool = False,
    elsewhere: "Mapping[str, Future[AnalyzerResult]]" = MappingProxyType({}),
) -> Analysis:
    """Run analyzers over one window and return what each finding saves by the waterfall.

    `report_unjudged`: an analyzer without findings records in its run what it could not judge.

    A workload that `guards`, or an analyzer among them, vetoes gets no recommendation. `at_once`:
    how many run in parallel; views of one connection allow only one. The result is the same.
    `elsewhere`: the results of analyzers that another process runs, by name.
    """
    all_findings: list[Finding] = []
    summaries: dict[str, dict[str, Any]] = {}
    notes: list[str] = []
    runs: list[PluginRun] = []

    def run_one(analyzer: Analyzer) -> AnalyzerResult:
        return run_analyzer(
            views, window, analyzer, summarise=summarise, report_unjudged=report_unjudged
        )

    with ThreadPoolExecutor(at_once, thread_name_prefix="analyzer") as pool:
        futures = {
            name: elsewhere.get(name) or pool.submit(run_one, analyzer)
            for name, analyzer in analyzers.items()
        }
        try:
            for name, future in futures.items():
                judged, run = _await_result(name, future, strict=strict)
                runs.append(run)
                if judged is None:
                    notes.append(f"{name} is withheld: {run.reason}")
                    continue
                own_findings, summary, _ = judged
                all_findings += [f for f in own_findings if cluster in (None, f.subject.cluster)]
                if summary is not None:
                    summaries[name] = summary
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
    all_findings = add_teams(views, window, all_findings)
    all_findings = apply_vetoes(
        add_recommendations(case_identity.join_parts(views, remove_overlaps(all_findings))),
        _collect_vetoes(views, window, [*analyzers.values(), *guards]),
    )
    waterfall = build_waterfall(views, window, all_findings, cluster)
    rows = rank_findings(add_savings(all_findings, waterfall), waterfall)
    return Analysis(window, tuple(rows), waterfall, summaries, tuple(notes), tuple(runs))


def _await_result(
    name: str, future: "Future[AnalyzerResult]", *, strict: bool
) -> tuple[AnalyzerResult | None, PluginRun]:
    """Return an analyzer's result and the result of its run; its errors affect only itself."""
    try:
        judged = future.result()
    except UnreadableDaysError as error:
        if strict:
            raise
        return None, PluginRun("analyzer", name, "withheld", error.message)
    except TemporaryError:
        raise
    except FallowError as error:
        if strict:
            raise
        return None, PluginRun("analyzer", name, "withheld", error.message)
    except Exception as error:
        if strict:
            raise
        return None, PluginRun(
            "analyzer", name, "failed", plugin_runs.log_failure("analyzer", name, error)
        )
    lacking = judged[2]
    return judged, PluginRun("analyzer", name, "withheld" if lacking else "done", lacking)


def run_analyzer(
    views: Views, window: Window, analyzer: Analyzer, *, summarise: bool, report_unjudged: bool
) -> AnalyzerResult:
    """Return one analyzer's findings, its summary, and why not all is judged ("" = all is)."""
    # What findings and unjudged work are about is read once.
    cached_views, summary, lacking = CachedViews(views), None, ""
    if summarise and isinstance(analyzer, ReportsSummary):
        results, summary = (
            [*analyzer.find(cached_views, window)],
            dict(analyzer.summary(cached_views, window)),
        )
    else:
        results = [*analyzer.find(cached_views, window)]
    if report_unjudged and not results and isinstance(analyzer, ReportsUnjudged):
        lacking = _find_main_reason(analyzer.unjudged(cached_views, window))
    return results, summary, lacking


def _find_main_reason(unjudged: Iterable[UnjudgedWork]) -> str:
    """Return the reason with the most GPU-hours that are not judged; "" = all are judged."""
    hours: dict[str, float] = {}
    for item in unjudged:
        reason = "; ".join(item.reasons)
        hours[reason] = hours.get(reason, 0.0) + (item.gpu_hours or 0.0)
    return max(hours, key=lambda reason: (hours[reason], reason), default="")


def _collect_vetoes(
    views: Views, window: Window, guards: Sequence[object]
) -> dict[tuple[str, str, str, str], str]:
    vetoes: dict[tuple[str, str, str, str], str] = {}
    for guard in guards:
        if isinstance(guard, BlocksAdvice):
            vetoes.update(guard.vetoes(views, window))
    return vetoes


def list_unjudged(
    views: Views, window: Window, analyzers: Mapping[str, Analyzer], cluster: str | None = None
) -> list[UnjudgedHours]:
    """Return what analyzers do not judge, summed by reason, the most GPU-hours first."""
    rows: list[UnjudgedHours] = []
    for name, analyzer in analyzers.items():
        if not isinstance(analyzer, ReportsUnjudged):
            continue
        reasons: dict[str, list[UnjudgedWork]] = {}
        try:
            for item in analyzer.unjudged(views, window):
                if cluster in (None, item.subject.cluster):
                    reasons.setdefault("; ".join(item.reasons), []).append(item)
        except UnreadableDaysError as error:
            rows.append(UnjudgedHours(name, error.message, 0.0, ()))
            continue
        except TemporaryError:
            raise
        except FallowError as error:
            rows.append(UnjudgedHours(name, error.message, 0.0, ()))
            continue
        except Exception as error:  # noqa: BLE001  (a fault in one plugin is that plugin's)
            rows.append(
                UnjudgedHours(name, plugin_runs.log_failure("analyzer", name, error), 0.0, ())
            )
            continue
        for reason, items in reasons.items():
            subjects = dict.fromkeys(findings.format_subject(item.subject) for item in items)
            total = sum(item.gpu_hours or 0.0 for item in items)
            rows.append(UnjudgedHours(name, reason, round(total, 3), tuple(subjects)))
    return sorted(rows, key=lambda row: (-row.gpu_hours, row.analyzer, row.reason))


def check_unjudged(
    warehouse: "Warehouse",
    settings: Settings,
    window: str | None,
    *,
    now: datetime,
    cluster: str | None,
) -> "list[CheckRow]":
    """Return what analyzers withhold as rows of `fallow doctor`; one ok row if it is nothing."""
    lag, every = settings.ledger.max_lag, settings.service.collect_every
    span = windows.find_covered_hours(
        warehouse, window, now, cluster, inventory=True, lag=lag, every=every
    )
    rows = list_unjudged(warehouse, span.judged, load_analyzers(settings), cluster)
    if not rows:
        return [CheckRow("withheld", "ok", f"every analyzer judges all of {span.notes[0]}")]
    return [
        CheckRow(
            f"{WITHHELD}{row.analyzer}",
            "warn",
            f"{row.reason}{_name_subjects(row)}",
            _name_document(row.analyzer),
        )
        for row in rows
    ]


def _name_document(analyzer: str) -> str:
    page = "docs/idle.md" if analyzer == "idle" else f"docs/analyzers/{analyzer}.md"
    return f"{page} says what it needs; a third party's: its own documentation"


def _name_subjects(row: UnjudgedHours) -> str:
    if not row.subjects:
        return ""
    named = ", ".join(row.subjects[:MOST_NAMED])
    more = len(row.subjects) - MOST_NAMED
    others = f" and {more:,} more" if more > 0 else ""
    return f": {row.gpu_hours:,.1f} GPU-hours of {named}{others}"


def store_analysis(
    settings: Settings, analysis: Analysis, cluster: str | None = None
) -> str | None:
    """Store findings, so that `fallow explain` can find them; return what to say about it.

    The run is stored too, so that a run without findings is distinct from no run. A run over one of
    several clusters does not apply to the others. Of another window than the site's, or of other
    settings, only `fallow explain` knows the findings, until the next such analysis.
    """
    try:
        with Warehouse.open(settings, write=True) as warehouse:
            if not analysis.difference:
                store_findings(warehouse, analysis, runs=() if cluster else analysis.runs)
                return None
            warehouse.replace("trial_finding", findings.build_trial_rows(analysis.findings).rows)
    except TemporaryError as error:
        return f"findings are not stored ({error.message}); fallow up stores its own"
    return (
        f"not stored as the site's findings: {analysis.difference}; "
        "fallow spend and the pages show what those save"
    )


def store_findings(
    warehouse: "Warehouse", analysis: Analysis, runs: Sequence[PluginRun] = ()
) -> list[Finding]:
    """Store findings with the ids of their cases, and the runs; return the stored findings.

    What the last runs of other analyzers save is theirs already: no GPU-hour is saved twice.
    """
    divided = _apportion_beside_others(warehouse, analysis, others_first=True)
    cases = case_identity.resolve(warehouse, divided.findings)
    at, batches = _choose_time(warehouse, analysis), []
    if cases.findings:
        batches.append(findings.build_rows(cases.findings, found_at=at, uids=cases.uids))
    if runs:
        mine = warehouse.settings.cluster
        batches.append(plugin_runs.to_batch(runs, cluster=mine, at=at, window=analysis.window))
    warehouse.ingest(batches)
    return [*cases.findings]


def _choose_time(views: Views, analysis: Analysis) -> datetime:
    """Return the end of an analysis, or a microsecond after the last one with that end.

    Of two windows that end together the later run counts, with nothing of the other.
    """
    end = analysis.window.end
    ran = [run.plugin for run in analysis.runs if run.kind == "analyzer"]
    rows = views.query(load_sql("last_analysis"), {"analyzers": ran, "until": end}).to_pylist()
    last: datetime | None = rows[0]["found_at"]
    return end if last is None else last.replace(tzinfo=UTC) + timedelta(microseconds=1)


def _apportion_beside_others(
    views: Views, analysis: Analysis, cluster: str | None = None, *, others_first: bool
) -> Analysis:
    """Return an analysis with what it saves beside the last runs of the other analyzers.

    `others_first`: of the hours that none of them has; else what it would save in its place of the
    order.
    """
    own, others = _read_competitors(views, analysis)
    if not others:
        return analysis
    before, among = (others, []) if others_first else ([], others)
    waterfall = build_waterfall(views, analysis.window, own, cluster, before=before, among=among)
    ranked = tuple(rank_findings(add_savings(own, waterfall), waterfall))
    return msgspec.structs.replace(analysis, ranked=ranked, waterfall=waterfall)


def _read_competitors(views: Views, analysis: Analysis) -> tuple[list[Finding], list[Finding]]:
    """Return an analysis' findings, and the other analyzers' of the last runs; [] = none claims.

    A hang that another analyzer has found is not found again.
    """
    own = analysis.findings
    ran = {run.plugin for run in analysis.runs if run.kind == "analyzer"}
    owners = {_get_owner(claim) for f in own for a in f.recommendations for claim in a.claims}
    if not owners:
        return own, []
    others = [
        clip_finding(stored, part)
        for stored, part in findings.read_parts(views, analysis.window, without=ran)
    ]
    claimed = {_get_owner(c) for f in others for a in f.recommendations for c in a.claims}
    if not owners & claimed:
        return own, []
    return [f for f in remove_overlaps([*own, *others]) if f.analyzer in ran], others


def _get_owner(claim: Claim) -> tuple[str, str | None, str | None, str | None]:
    return claim.cluster, claim.namespace, claim.workload_kind, claim.workload


def _load_analyzer(settings: Settings, name: str) -> Analyzer:
    plugin = plugins.load("analyzers", name)
    if not plugins.is_own("analyzers", name):
        foreign: Analyzer = plugins.build("analyzers", name, settings.plugins)
        return foreign
    section = getattr(settings, name.replace("-", "_"), None)
    shared = {group: getattr(settings, group) for group in getattr(plugin, "shared_settings", ())}
    analyzer: Analyzer = plugin(**shared) if section is None else plugin(section, **shared)
    return analyzer
