"""What `fallow plan`, `why-not` and `backtest` do: findings to facts to decisions, read only."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import msgspec

from fallow import boundary
from fallow.acting import Facts, History
from fallow.errors import FallowError, TemporaryError, UsageError
from fallow.nouns import Finding, Subject
from fallow.seams import Analyzer, Doubting, Views
from fallow.settings import Settings
from fallow.window import Window, format_duration
from runtime import analyzing, continuity, windows
from runtime.identities import views_with_identities, with_reasons

if TYPE_CHECKING:
    from actions.backtest import Backtest
    from actions.journal import Record
    from actions.journal.trust import Standing
    from actions.planning import Plan
    from actions.policy.budgets import Spent
    from actions.policy.model import Policy
    from actions.whynot import Answer
    from warehouse.lake import Warehouse

IDLE = "idle"
BACK = timedelta(hours=1)
"""Looks back for longer than the longest duration that an idle verdict asks for."""
LATE = timedelta(minutes=10)
WARM = timedelta(days=1)
"""History before a back-test's first moment: what idled then idled longer."""
STEP = timedelta(hours=1)
SLOW_STEP = timedelta(days=1)
"""Between moments where an analyzer has to be asked at each."""


class Planned(msgspec.Struct, frozen=True):
    """A plan and what it rests on."""

    at: datetime
    plan: "Plan"
    findings: dict[str, Finding]
    facts: tuple[Facts, ...]
    notes: tuple[str, ...]
    by_hand: "tuple[Standing, ...]" = ()
    """Policies that a person trusts without a proof: who, when and why."""


class Told(msgspec.Struct, frozen=True):
    """Why a workload is not acted upon: the gates' answers, by finding and policy."""

    subject: Subject
    at: datetime
    cases: "tuple[tuple[Finding, str, tuple[Answer, ...]], ...]"
    doubts: tuple[str, ...]
    """What analyzers do not judge about it, and why."""


def policies(settings: Settings, named: Sequence[Path] = ()) -> "tuple[Policy, ...]":
    """Return the site's policies, or those of the files and folders named.

    Raises:
        UsageError: a file does not exist, or holds what is not legal.
    """
    from actions.policy.reading import read  # noqa: PLC0415

    look = max(settings.service.collect_every, settings.exporters.interval)
    if not named and not settings.actions.policies.exists():
        raise no_folder(settings)
    return read(list(named) or [settings.actions.policies], look=look)


def no_folder(settings: Settings) -> UsageError:
    """Return the error of a site that has no policies yet."""
    where = settings.actions.policies
    return UsageError(
        f"there is no folder of policies at {where}",
        hint=f"fallow policy init {where} writes those that come with Fallow",
    )


def plan(
    warehouse: "Warehouse",
    settings: Settings,
    rules: "Sequence[Policy]",
    *,
    at: datetime,
    cluster: str | None,
) -> Planned:
    """Decide about everything that is wasted at a moment, from rows of before it.

    Raises:
        UsageError: there are no telemetry or no rows before that moment.
    """
    facts, notes = cases(warehouse, settings, at=at, cluster=cluster)
    made, facts = decide(warehouse, settings, rules, facts, at)
    findings = {f.finding.id: f.finding for f in facts}
    by_hand = tuple(s for s in standings(settings, rules).values() if s.how == "hand")
    return Planned(at, made, findings, tuple(facts), tuple(notes), by_hand)


def standings(settings: Settings, rules: "Sequence[Policy]") -> "dict[str, Standing]":
    """Return how far each policy may go by the journal; where there is none, nothing is known."""
    from actions.journal import trust  # noqa: PLC0415

    with _Book(settings) as book:
        return {} if book.record is None else trust.standings(book.record, rules)


def decide(
    warehouse: "Warehouse",
    settings: Settings,
    rules: "Sequence[Policy]",
    facts: Sequence[Facts],
    at: datetime,
) -> "tuple[Plan, list[Facts]]":
    """Return what policies decide about cases, and these under the ids the journal knows."""
    from actions.planning import plan as decided  # noqa: PLC0415

    with _Book(settings) as book:
        known = book.same(facts)
        histories = book.histories([p.name for p in rules], [f.finding for f in known])
        return decided(rules, known, book.spent(warehouse, rules, at), at, histories), known


def why_not(
    warehouse: "Warehouse",
    settings: Settings,
    rules: "Sequence[Policy]",
    workload: str,
    *,
    at: datetime,
    cluster: str | None,
) -> Told:
    """Return every gate's answer about a workload, by finding and policy.

    Raises:
        UsageError: no workload is meant, or several are.
    """
    from actions.whynot import answers, chosen  # noqa: PLC0415

    facts, _ = cases(warehouse, settings, at=at, cluster=cluster)
    held = windows.extent(warehouse, cluster)
    # Of data that end in the past, their last day is what was seen lately.
    last = at if held is None else min(at, held.end)
    subject = chosen(workload, [*(f.finding.subject for f in facts), *_lately(warehouse, last)])
    key = _key(subject)
    mine = [f for f in facts if _key(f.finding.subject) == key]
    told = []
    with _Book(settings) as book:
        mine = book.same(mine)
        histories = book.histories([p.name for p in rules], [f.finding for f in mine])
        spent = book.spent(warehouse, rules, at)
        for case in mine:
            for rule in rules:
                history = histories.get((rule.name, case.finding.id), case.history)
                known = msgspec.structs.replace(case, history=history)
                told.append((case.finding, rule.name, tuple(answers(rule, known, spent, at))))
    doubts = () if mine else _doubts(warehouse, settings, last, key)
    return Told(subject, at, tuple(told), doubts)


def backtest(
    warehouse: "Warehouse",
    settings: Settings,
    rule: "Policy",
    *,
    since: str,
    step: timedelta | None,
    within: timedelta | None,
    now: datetime,
    cluster: str | None,
) -> "Backtest":
    """Replay a policy over the site's own history.

    Raises:
        UsageError: there is no history, it does not reach far enough, or the policy matches
            findings of several analyzers.
    """
    from actions.backtest import backtest as replay  # noqa: PLC0415
    from actions.backtest.slow import remembered  # noqa: PLC0415
    from fallow.seams import Remembering  # noqa: PLC0415

    window = history(warehouse, since, now, cluster)
    analyzer = _analyzer(settings, rule)
    told = isinstance(analyzer, Remembering)
    moments = grid(window, step or (STEP if told else SLOW_STEP))
    held = windows.extent(warehouse, cluster)
    begin = max(window.start - WARM, held.start) if held else window.start
    whole = Window(begin, moments[-1])
    if isinstance(analyzer, Remembering):
        past: Any = analyzer.past(warehouse, whole, moments)
    else:
        past = remembered(analyzer, warehouse, whole, moments, windows.LAST)
    end = max(window.end, moments[-1])
    return replay(rule, past, warehouse, Window(begin, end), moments, within, exact=not told)


def history(
    warehouse: "Warehouse", since: str, now: datetime, cluster: str | None = None
) -> Window:
    """Return the window asked for, as far as there are rows.

    Raises:
        UsageError: there are none at all, or none in it, or it lies in the future.
    """
    held = windows.extent(warehouse, cluster)
    if held is None:
        raise UsageError(
            "the warehouse holds no telemetry: there is nothing to replay",
            hint="fallow import, fallow collect or fallow demo bring some in",
        )
    asked = windows.parse(since, now)
    if asked.start >= now:
        raise UsageError(f"{windows.spoken(asked)} lies in the future")
    if asked.start >= held.end or asked.end <= held.start:
        raise UsageError(
            f"nothing lies in {windows.spoken(asked)}", hint=f"the data are {windows.spoken(held)}"
        )
    return Window(max(asked.start, held.start), min(asked.end, held.end, now))


def grid(window: Window, step: timedelta) -> list[datetime]:
    """Return the moments of a replay: equally far apart, on multiples of five minutes.

    Raises:
        UsageError: the window is shorter than one step, or a step is no multiple of five minutes.
    """
    seconds = step.total_seconds()
    if seconds % 300:
        raise UsageError(
            f"--step {format_duration(seconds)} is no multiple of 5m",
            hint="rollups tell of five minutes at a time",
        )
    first = -(-int(window.start.timestamp()) // int(seconds)) * int(seconds)
    begin = datetime.fromtimestamp(first, window.start.tzinfo)
    if begin == window.start:
        begin += step
    count = int((window.end - begin) / step) + 1
    if count < 1 or begin > window.end:
        raise UsageError(
            f"{windows.spoken(window)} is shorter than a step of {format_duration(seconds)}",
            hint="ask for more history, or a smaller --step",
        )
    return [begin + n * step for n in range(count)]


def journal_of(settings: Settings) -> Path:
    """Return where the journal lies."""
    return settings.actions.journal or settings.home / "journal.sqlite"


def note(settings: Settings, made: "Backtest", now: datetime, *, actor: str = "") -> None:
    """Write a back-test's verdict where the loop finds it: `trusted` where the rate is proved."""
    from actions.journal import Journal  # noqa: PLC0415

    figures = {
        "fingerprint": made.fingerprint,
        "since": made.window.start.isoformat(),
        "until": made.window.end.isoformat(),
        "step_s": made.step.total_seconds(),
        "stops": len(made.stops),
        "judged": made.judged,
        "regretted": made.regretted,
        "rate": made.rate,
        "interval": list(made.interval),
        "upper_end": made.proof.upper_end,
        "within_s": made.within.total_seconds(),
        "declared": made.declared,
        "gpu_hours": made.gpu_hours,
        "met": made.met,
    }
    who = actor or "fallow"
    with Journal.open(journal_of(settings), lambda: now, actor=who) as journal:
        rows = [("backtested", made.policy, figures)]
        if made.met:
            rows.append(("trusted", made.policy, {**figures, "by": "backtest"}))
        journal.extend(rows)


class _Book:
    """The journal where there is one: what it knows of cases, and what was spent."""

    def __init__(self, settings: Settings) -> None:
        self._path = journal_of(settings)
        self.record: Record | None = None
        self._file = settings.actions.freeze_file

    def __enter__(self) -> Self:
        from actions.journal import Journal, Record  # noqa: PLC0415

        if self._path.is_file():
            self._journal = Journal.open(self._path, _never, write=False)
            self.record = Record(self._journal).catch_up()
        return self

    def __exit__(self, *_: object) -> None:
        if self.record is not None:
            self._journal.close()

    def same(self, facts: Sequence[Facts]) -> list[Facts]:
        """Return facts as the cases that the journal knows."""
        return [*facts] if self.record is None else self.record.same(facts)

    def histories(
        self, names: Sequence[str], findings: Sequence[Finding]
    ) -> Mapping[tuple[str, str], History]:
        """Return what is known of each case, by policy and finding."""
        return {} if self.record is None else self.record.histories(names, findings)

    def spent(self, warehouse: "Warehouse", rules: "Sequence[Policy]", at: datetime) -> "Spent":
        """Return what was done, and the fleet it was done to."""
        from actions.facts import fleet  # noqa: PLC0415
        from actions.journal.trust import with_trust  # noqa: PLC0415
        from actions.policy.budgets import horizon  # noqa: PLC0415

        made = fleet(warehouse, at)
        record = self.record
        if record is None:
            return made
        frozen = record.frozen
        made = msgspec.structs.replace(
            made,
            uses=record.uses(at - horizon(rules)),
            concurrent=len(record.open()),
            frozen=None if frozen is None else f"frozen by {frozen.by}: {frozen.why}",
            acted=record.acted(),
        )
        return with_trust(made, record, rules)


def _never() -> datetime:
    raise RuntimeError("a plan writes nothing into the journal")


def cases(
    warehouse: "Warehouse",
    settings: Settings,
    *,
    at: datetime,
    cluster: str | None,
    names: Sequence[str] = (),
) -> tuple[list[Facts], list[str]]:
    """Return the facts of what analyzers (those named; none = all) find now, and what to say.

    Idle work is judged in the hours that its verdict rests on, sample by sample where these are
    few enough; the others judge the last days, as `fallow analyze` does. What goes on a stored case
    has its id and start.

    Raises:
        UsageError: there are no telemetry or no rows before that moment.
    """
    from actions.facts import gather  # noqa: PLC0415

    window, said = windows.choose(warehouse, None, at, cluster, inventory=True)
    if window.start >= at:
        raise UsageError(
            f"there are no rows before {at:%Y-%m-%d %H:%M} UTC", hint=f"the data are {said}"
        )
    window = Window(window.start, min(window.end, at))
    notes = []
    if at - window.end > LATE:
        late = format_duration((at - window.end).total_seconds())
        notes.append(
            f"the last look is {late} old: nothing can be acted upon "
            f"(--at {window.end:%Y-%m-%dT%H:%M} shows the plan of then)"
        )
    longest = max(settings.idle.min_duration, settings.idle.service_duration) + BACK
    brief = Window(max(window.start, window.end - longest), window.end)
    views = views_with_identities(warehouse, settings, window, at)
    found: list[Finding] = []
    asked = analyzing.chosen(settings, names)
    for name, analyzer in asked.items():
        span = brief if name == IDLE else window
        try:
            found += list(analyzer.find(views, span))
        except TemporaryError:
            raise
        except FallowError as error:
            notes.append(f"{name} is withheld: {error.message}")
        except Exception as error:  # noqa: BLE001  (a fault in one plugin is that plugin's)
            notes.append(f"{name} is withheld: {boundary.failed('analyzer', name, error)}")
    whole = [f for f in found if cluster in (None, f.subject.cluster)]
    facts = gather(views, _cases(views, asked, whole, brief, window), at)
    facts, unknown = with_reasons(settings, facts)
    return facts, [*notes, *unknown]


def _cases(
    views: Views,
    analyzers: Mapping[str, Analyzer],
    found: Sequence[Finding],
    brief: Window,
    window: Window,
) -> list[Finding]:
    """Return findings as the cases that they go on, since when they were first seen."""
    cases = continuity.resolve(views, found)
    idle = [n for n, f in enumerate(cases.findings) if f.analyzer == IDLE]
    if not idle:
        return [*cases.findings]
    mine = continuity.Cases(tuple(cases.findings[n] for n in idle), {})
    longer = continuity.begun_before(views, mine, analyzers[IDLE], brief, window)
    since = dict(zip(idle, longer.findings, strict=True))
    return [since.get(n, f) for n, f in enumerate(cases.findings)]


def _analyzer(settings: Settings, rule: "Policy") -> Any:
    from actions.policy.matching import any_of  # noqa: PLC0415
    from fallow import plugins  # noqa: PLC0415

    wanted = rule.match.analyzer or ("*",)
    names = [n for n in plugins.installed("analyzers") if any_of(wanted, n)]
    if len(names) != 1:
        raise UsageError(
            f"policy {rule.name!r} matches findings of {len(names)} analyzers",
            hint="a back-test replays one: let match.analyzer name it",
        )
    return analyzing.chosen(settings, names)[names[0]]


def _lately(warehouse: "Warehouse", at: datetime) -> list[Subject]:
    """Return the workloads that held GPUs in the day before a moment."""
    rows = warehouse.query(
        "SELECT DISTINCT cluster, namespace, workload_kind, workload FROM allocation "
        'WHERE start < $until AND coalesce("end", $until) >= $since AND workload IS NOT NULL '
        "ORDER BY ALL",
        {"since": at - timedelta(days=1), "until": at},
    ).to_pylist()
    return [Subject(**row) for row in rows]


def _doubts(
    warehouse: "Warehouse", settings: Settings, at: datetime, key: tuple[str, ...]
) -> tuple[str, ...]:
    window = Window(at - timedelta(days=1), at)
    found = []
    for name, analyzer in analyzing.chosen(settings).items():
        if not isinstance(analyzer, Doubting):
            continue
        try:
            doubts = [*analyzer.unjudged(warehouse, window)]
        except TemporaryError:
            raise
        except FallowError:
            continue
        found += [
            f"{name}: {reason}" for d in doubts if _key(d.subject) == key for reason in d.reasons
        ]
    return tuple(dict.fromkeys(found))


def _key(subject: Subject) -> tuple[str, ...]:
    return subject.cluster, subject.namespace, subject.workload_kind, subject.workload
