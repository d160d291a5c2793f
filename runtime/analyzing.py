"""What `fallow analyze` does: run analyzers, advise, pour the waterfall, rank by dollars."""

import logging
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

import msgspec

from fallow import boundary, plugins
from fallow.boundary import PluginRun
from fallow.errors import FallowError, TemporaryError, UsageError
from fallow.nouns import Finding
from fallow.seams import Analyzer, Doubt, Doubting, Summarising, Vetoing, Views
from fallow.settings import Settings
from fallow.window import Window
from runtime import continuity, findings, windows

if TYPE_CHECKING:
    from concurrent.futures import Future

    from analyzers.ranking import Ranked
    from analyzers.waterfall import Waterfall
    from collectors.doctor import Row
    from warehouse.lake import Warehouse

log = logging.getLogger("fallow.analyzers")

AT_ONCE = 2
"""Analyzers that look at a warehouse at the same time: one counts while the other asks."""

MOST_NAMED = 5
"""Subjects that a line of the doctor names; the others are counted."""


class Analysis(msgspec.Struct, frozen=True):
    """Findings by the dollars they save, how they add up, and what must be said beside them."""

    window: Window
    ranked: "tuple[Ranked, ...]"
    waterfall: "Waterfall"
    summaries: dict[str, dict[str, Any]]
    notes: tuple[str, ...] = ()
    runs: tuple[PluginRun, ...] = ()

    @property
    def findings(self) -> list[Finding]:
        """Return the findings, the dearest first."""
        return [row.finding for row in self.ranked]


Judged = tuple[list[Finding], dict[str, Any] | None, str]
"""What an analyzer finds, its summary, and why not all is judged; "" = all is."""


class Unloadable:
    """Stands for an installed analyzer whose code cannot be loaded, and says so."""

    def __init__(self, why: str) -> None:
        self.why = why

    def find(self, _views: Views, _window: Window) -> list[Finding]:
        """Refuse."""
        raise UsageError(self.why)

    def unjudged(self, _views: Views, _window: Window) -> list[Doubt]:
        """Refuse."""
        raise UsageError(self.why)


class Withheld(msgspec.Struct, frozen=True):
    """What an analyzer does not judge, and why: hours and workloads per reason."""

    analyzer: str
    reason: str
    gpu_hours: float
    subjects: tuple[str, ...]


def chosen(settings: Settings, names: Sequence[str] = ()) -> dict[str, Analyzer]:
    """Return the analyzers of these names (none = all), each with its section of the settings.

    Of all, one that cannot be loaded stands there too, and refuses every window with the reason.

    Raises:
        UsageError: nothing of a name is installed, or one that is named cannot be loaded.
    """
    made: dict[str, Analyzer] = {}
    for name in dict.fromkeys(names or plugins.installed("analyzers")):
        try:
            made[name] = _made(settings, name)
        except FallowError:
            raise
        except Exception as error:
            why = f"analyzer {name!r} cannot be loaded: {error}"
            if names:
                raise UsageError(why, hint="reinstall what brings it") from error
            made[name] = Unloadable(why)
    return made


def analyze(
    warehouse: "Warehouse",
    settings: Settings,
    names: Sequence[str],
    window: str | None,
    *,
    now: datetime,
    cluster: str | None,
) -> Analysis:
    """Find waste in the window requested (see `windows.figures`) with the analyzers named.

    With none named all run, and one that cannot judge the window is noted, not an error.

    Raises:
        UsageError: an unknown name, no telemetry, or a named analyzer that refuses the window.
    """
    from warehouse import audits  # noqa: PLC0415  (the engine loads in 0.3 s)

    asked = chosen(settings, names)
    lag, every = settings.ledger.max_lag, settings.service.collect_every
    span = windows.figures(warehouse, window, now, cluster, inventory=True, lag=lag, every=every)
    guards = [a for a in chosen(settings).values() if isinstance(a, Vetoing)] if names else []
    made = examine(
        warehouse,
        span.judged,
        asked,
        cluster=cluster,
        strict=bool(names),
        guards=guards,
        at_once=AT_ONCE,
        doubts=True,
    )
    fault = audits.banner(audits.run(warehouse, span.window))
    notes = (*span.notes, *([fault] if fault else []), *made.notes)
    return msgspec.structs.replace(_named(warehouse, made), notes=notes)


def _named(views: Views, made: Analysis) -> Analysis:
    """Return an analysis under the ids of the cases; its figures are those of its window."""
    ids = continuity.resolve(views, made.findings).ids
    rows = (
        msgspec.structs.replace(row, finding=msgspec.structs.replace(row.finding, id=case))
        for row, case in zip(made.ranked, ids, strict=True)
    )
    return msgspec.structs.replace(made, ranked=tuple(rows))


def examine(
    views: Views,
    window: Window,
    analyzers: Mapping[str, Analyzer],
    *,
    cluster: str | None = None,
    strict: bool = True,
    summarise: bool = True,
    guards: Sequence[Vetoing] = (),
    at_once: int = 1,
    doubts: bool = False,
) -> Analysis:
    """Run analyzers over one window and let the waterfall say what each finding saves.

    `doubts`: an analyzer that finds nothing says in its run what it could not judge.

    What `guards`, or analyzers that are among them, veto is advised by nobody. `at_once`: how many
    run at the same time, which views of one connection do not bear; the outcome is the same.
    """
    from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415

    from actions.recommend import advised  # noqa: PLC0415
    from analyzers.ranking import ranked  # noqa: PLC0415  (arrays load in 0.2 s)
    from analyzers.services.vetoes import kept  # noqa: PLC0415
    from analyzers.waterfall import credited, fall  # noqa: PLC0415

    found: list[Finding] = []
    summaries: dict[str, dict[str, Any]] = {}
    notes: list[str] = []
    runs: list[PluginRun] = []

    def look(analyzer: Analyzer) -> Judged:
        return _judge(views, window, analyzer, summarise=summarise, doubts=doubts)

    with ThreadPoolExecutor(at_once, thread_name_prefix="analyzer") as pool:
        asked = {name: pool.submit(look, analyzer) for name, analyzer in analyzers.items()}
        try:
            for name, answer in asked.items():
                judged, run = _settled(name, answer, strict=strict)
                runs.append(run)
                if judged is None:
                    notes.append(f"{name} is withheld: {run.reason}")
                    continue
                made, summary, _ = judged
                found += [f for f in made if cluster in (None, f.subject.cluster)]
                if summary is not None:
                    summaries[name] = summary
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
    found = kept(advised(found), _vetoes(views, window, [*analyzers.values(), *guards]))
    waterfall = fall(views, window, found, cluster)
    rows = ranked(credited(found, waterfall), waterfall)
    return Analysis(window, tuple(rows), waterfall, summaries, tuple(notes), tuple(runs))


def _settled(
    name: str, answer: "Future[Judged]", *, strict: bool
) -> tuple[Judged | None, PluginRun]:
    """Return what an analyzer judged and what came of its run: its fault is its own."""
    try:
        judged = answer.result()
    except TemporaryError:
        raise
    except FallowError as error:
        if strict:
            raise
        return None, PluginRun("analyzer", name, "withheld", error.message)
    except Exception as error:
        if strict:
            raise
        return None, PluginRun("analyzer", name, "failed", boundary.failed("analyzer", name, error))
    lacking = judged[2]
    return judged, PluginRun("analyzer", name, "withheld" if lacking else "done", lacking)


def _judge(
    views: Views, window: Window, analyzer: Analyzer, *, summarise: bool, doubts: bool
) -> Judged:
    """Return what one analyzer finds, its summary, and why not all is judged ("" = all is)."""
    from analyzers.once import Once  # noqa: PLC0415  (arrays load in 0.2 s)

    seen, summary, lacking = views, None, ""
    if summarise and isinstance(analyzer, Summarising):
        seen = Once(views)
        made, summary = [*analyzer.find(seen, window)], dict(analyzer.summary(seen, window))
    else:
        made = [*analyzer.find(seen, window)]
    if doubts and not made and isinstance(analyzer, Doubting):
        lacking = _lacking(analyzer.unjudged(seen, window))
    return made, summary, lacking


def _lacking(unjudged: Iterable[Doubt]) -> str:
    """Return the reason of the most GPU-hours that are not judged; "" = all are."""
    hours: dict[str, float] = {}
    for item in unjudged:
        reason = "; ".join(item.reasons)
        hours[reason] = hours.get(reason, 0.0) + (item.gpu_hours or 0.0)
    return max(hours, key=lambda reason: (hours[reason], reason), default="")


def _vetoes(
    views: Views, window: Window, guards: Sequence[object]
) -> dict[tuple[str, str, str, str], str]:
    made: dict[tuple[str, str, str, str], str] = {}
    for guard in guards:
        if isinstance(guard, Vetoing):
            made.update(guard.vetoes(views, window))
    return made


def withheld(
    views: Views, window: Window, analyzers: Mapping[str, Analyzer], cluster: str | None = None
) -> list[Withheld]:
    """Return what analyzers do not judge, summed by reason, the most GPU-hours first."""
    rows: list[Withheld] = []
    for name, analyzer in analyzers.items():
        if not isinstance(analyzer, Doubting):
            continue
        reasons: dict[str, list[Doubt]] = {}
        try:
            for item in analyzer.unjudged(views, window):
                if cluster in (None, item.subject.cluster):
                    reasons.setdefault("; ".join(item.reasons), []).append(item)
        except TemporaryError:
            raise
        except FallowError as error:
            rows.append(Withheld(name, error.message, 0.0, ()))
            continue
        except Exception as error:  # noqa: BLE001  (a fault in one plugin is that plugin's)
            rows.append(Withheld(name, boundary.failed("analyzer", name, error), 0.0, ()))
            continue
        for reason, items in reasons.items():
            whom = dict.fromkeys(findings.named(item.subject) for item in items)
            total = sum(item.gpu_hours or 0.0 for item in items)
            rows.append(Withheld(name, reason, round(total, 3), tuple(whom)))
    return sorted(rows, key=lambda row: (-row.gpu_hours, row.analyzer, row.reason))


def doubts(
    warehouse: "Warehouse",
    settings: Settings,
    window: str | None,
    *,
    now: datetime,
    cluster: str | None,
) -> "list[Row]":
    """Return what analyzers withhold as rows of `fallow doctor`; one row ok where it is nothing."""
    from collectors.doctor import Row  # noqa: PLC0415

    lag, every = settings.ledger.max_lag, settings.service.collect_every
    span = windows.figures(warehouse, window, now, cluster, inventory=True, lag=lag, every=every)
    rows = withheld(warehouse, span.judged, chosen(settings), cluster)
    if not rows:
        return [Row("withheld", "ok", f"every analyzer judges all of {span.notes[0]}")]
    return [
        Row(
            f"withheld by {row.analyzer}", "warn", f"{row.reason}{_whom(row)}", _needs(row.analyzer)
        )
        for row in rows
    ]


def _needs(analyzer: str) -> str:
    page = "docs/idle.md" if analyzer == "idle" else f"docs/analyzers/{analyzer}.md"
    return f"{page} says what it needs; a third party's: its own documentation"


def _whom(row: Withheld) -> str:
    if not row.subjects:
        return ""
    named = ", ".join(row.subjects[:MOST_NAMED])
    more = len(row.subjects) - MOST_NAMED
    others = f" and {more:,} more" if more > 0 else ""
    return f": {row.gpu_hours:,.1f} GPU-hours of {named}{others}"


def keep(settings: Settings, made: Analysis, cluster: str | None = None) -> str | None:
    """Store findings, so that `fallow explain` knows them; return why not where that failed.

    What ran is stored too, so that nothing found is not taken for never analysed; a run over one
    of several clusters says nothing of the others.
    """
    from warehouse.lake import Warehouse  # noqa: PLC0415  (the engine loads in 0.3 s)

    try:
        with Warehouse.open(settings, write=True) as warehouse:
            store(warehouse, made, runs=() if cluster else made.runs)
    except TemporaryError as error:
        return f"findings are not stored ({error.message}); fallow up stores its own"
    return None


def store(warehouse: "Warehouse", made: Analysis, runs: Sequence[PluginRun] = ()) -> list[Finding]:
    """Store findings under the ids of their cases, and what ran; return the findings stored."""
    cases = continuity.resolve(warehouse, made.findings)
    end, batches = made.window.end, []
    if cases.findings:
        batches.append(findings.rows(cases.findings, found_at=end, uids=cases.uids))
    if runs:
        mine = warehouse.settings.cluster
        batches.append(boundary.rows(runs, cluster=mine, at=end, window=made.window))
    warehouse.ingest(batches)
    return [*cases.findings]


def saved(
    views: Views, window: Window, cluster: str | None = None
) -> "tuple[Waterfall, datetime] | None":
    """Return the waterfall of the stored findings over a window, and of when they are.

    Of each analyzer, what its last run found; a finding claims the part of its hours that lies in
    the window. None = no finding is stored.
    """
    from analyzers.waterfall import clipped, fall  # noqa: PLC0415

    found = findings.latest(views, window, cluster)
    if not found:
        return None
    when = max(f.window.end for f in found)
    return fall(views, window, [clipped(f, window) for f in found], cluster), when


def _made(settings: Settings, name: str) -> Analyzer:
    plugin = plugins.load("analyzers", name)
    section = getattr(settings, name.replace("-", "_"), None)
    made: Analyzer = plugin() if section is None else plugin(section)
    return made
