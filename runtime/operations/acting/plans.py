"""Run `fallow plan`, `why-not` and `backtest`: findings to facts to decisions, read only."""

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import msgspec

from actions.backtest import replay_policy as replay
from actions.backtest.stepwise import replay_analyzer
from actions.facts import gather_facts, read_fleet
from actions.gate_answers import answer_gates, find_subject
from actions.journal import Journal, JournalState, trust
from actions.journal.trust import add_trust
from actions.loop.other_clusters import add_other_actions
from actions.plan import plan as decided
from actions.policy.budgets import get_horizon, has_fleet_budget
from actions.policy.matching import is_any_match
from actions.policy.parser import read_policies
from analyzers.overlaps import remove_overlaps
from fallow import plugin_runs, plugins
from fallow.action_models import Action, CaseHistory, Facts
from fallow.errors import FallowError, TemporaryError, UsageError
from fallow.models import Finding, Subject
from fallow.protocols import FindsLatest, Replayable, ReportsUnjudged
from fallow.settings import Settings
from fallow.window import Window, format_duration
from runtime.operations.accounting import windows
from runtime.operations.acting.identities import add_reasons, build_views_with_identities
from runtime.operations.acting.stored_answers import list_recent_workloads
from runtime.operations.analysis import analyzer_runs, case_identity
from warehouse import coverage

if TYPE_CHECKING:
    from actions.backtest import Backtest
    from actions.gate_answers import GateAnswer
    from actions.journal.trust import TrustState
    from actions.plan import ActionPlan
    from actions.policy.budgets import BudgetUsage
    from actions.policy.model import Policy
    from warehouse.lake import Warehouse

STALE_AFTER = timedelta(minutes=10)
WARM_UP = timedelta(days=1)
"""History before a backtest's first time: work that is idle then has been idle for longer."""
STEP = timedelta(hours=1)
SLOW_STEP = timedelta(days=1)
"""Step between the times of a replay if an analyzer has to run at each."""


class PlanResult(msgspec.Struct, frozen=True):
    """A plan and its inputs."""

    at: datetime
    plan: "ActionPlan"
    findings: dict[str, Finding]
    facts: tuple[Facts, ...]
    notes: tuple[str, ...]
    by_hand: "tuple[TrustState, ...]" = ()
    """Policies that a person trusts without a proof: who, when and why."""


AnsweredCase = tuple[Finding, str, "tuple[GateAnswer, ...]"]
"""A finding, a policy's name, and the results of the policy's gates."""


class WhyNotReport(msgspec.Struct, frozen=True):
    """Why no action is taken on a workload: the gates' results, by finding and policy."""

    subject: Subject
    at: datetime
    cases: tuple[AnsweredCase, ...]
    doubts: tuple[str, ...]
    """What analyzers do not judge about it, and why."""


def load_policies(settings: Settings, named: Sequence[Path] = ()) -> "tuple[Policy, ...]":
    """Return the site's policies, or those of the named files and folders.

    Raises:
        UsageError: a file does not exist, or its content is not legal.
    """
    sample_interval = max(settings.service.collect_every, settings.exporters.interval)
    if not named and not settings.actions.policies.exists():
        raise explain_missing_folder(settings)
    return read_policies(list(named) or [settings.actions.policies], interval=sample_interval)


def explain_missing_folder(settings: Settings) -> UsageError:
    """Return the error of a site that has no policies yet."""
    where = settings.actions.policies
    return UsageError(
        f"there is no folder of policies at {where}",
        hint=f"fallow policy init {where} writes those that come with Fallow",
    )


def make_plan(
    warehouse: "Warehouse",
    settings: Settings,
    rules: "Sequence[Policy]",
    *,
    at: datetime,
    cluster: str | None,
) -> PlanResult:
    """Decide about all waste at a time, from earlier rows.

    Raises:
        UsageError: there is no telemetry, or no row before that time.
    """
    facts, notes = gather_cases(warehouse, settings, at=at, cluster=cluster)
    plan, facts = decide(warehouse, settings, rules, facts, at)
    findings = {f.finding.id: f.finding for f in facts}
    by_hand = tuple(s for s in read_standings(settings, rules).values() if s.how == "hand")
    return PlanResult(at, plan, findings, tuple(facts), tuple(notes), by_hand)


def read_standings(settings: Settings, rules: "Sequence[Policy]") -> "dict[str, TrustState]":
    """Return how far each policy may act by the journal; without one, nothing is known."""
    with _JournalReader(settings) as reader:
        return {} if reader.record is None else trust.read_trust_states(reader.record, rules)


def read_standing_actions(settings: Settings, now: datetime) -> list[Action]:
    """Return the actions that are open or can still be undone; without a journal none."""
    with _JournalReader(settings) as reader:
        if reader.record is None:
            return []
        standing = reader.record.list_standing(now - settings.actions.watch)
        states = (*reader.record.list_open(), *standing)
        return [state.action for state in states]


def decide(
    warehouse: "Warehouse",
    settings: Settings,
    rules: "Sequence[Policy]",
    facts: Sequence[Facts],
    at: datetime,
) -> "tuple[ActionPlan, list[Facts]]":
    """Return the policies' decisions about cases, and the cases with the ids of the journal."""
    with _JournalReader(settings) as reader:
        same_cases = reader.same(facts)
        histories = reader.histories([p.name for p in rules], [f.finding for f in same_cases])
        usage, under_way = reader.usage(warehouse, rules, at), reader.count_open()
        return (
            decided(rules, same_cases, usage, at, histories, under_way=under_way),
            same_cases,
        )


def explain_why_not(
    warehouse: "Warehouse",
    settings: Settings,
    rules: "Sequence[Policy]",
    workload: str,
    *,
    at: datetime,
    cluster: str | None,
) -> WhyNotReport:
    """Return every gate's result about a workload, by finding and policy.

    Raises:
        UsageError: the text matches no workload, or several.
    """
    facts, _ = gather_cases(warehouse, settings, at=at, cluster=cluster)
    extent = coverage.find_extent(warehouse, cluster)
    # If the data end in the past, the recent workloads are those of their last day.
    last = at if extent is None else min(at, extent.end)
    subject = find_subject(
        workload,
        [*(f.finding.subject for f in facts), *list_recent_workloads(warehouse, last, cluster)],
    )
    key = _build_key(subject)
    mine = [f for f in facts if _build_key(f.finding.subject) == key]
    if not mine and last < at:
        # The current plan has no case of it: the gates' results are for the time at which the data
        # end.
        facts, _ = gather_cases(warehouse, settings, at=last, cluster=cluster)
        mine = [f for f in facts if _build_key(f.finding.subject) == key]
    # What goes on before what has ended, and the policy that lacks the least first.
    answered_cases = sorted(
        answer_cases(warehouse, settings, rules, mine, at),
        key=lambda case: (at - case[0].window.end, case[0].id, sum(not g.open for g in case[2])),
    )
    doubts = () if mine else _list_unjudged_reasons(warehouse, settings, last, key)
    return WhyNotReport(subject, at, tuple(answered_cases), doubts)


def answer_cases(
    warehouse: "Warehouse",
    settings: Settings,
    rules: "Sequence[Policy]",
    cases: Sequence[Facts],
    at: datetime,
) -> tuple[AnsweredCase, ...]:
    """Return every gate's result about cases at a time, by finding and policy."""
    answered_cases = []
    with _JournalReader(settings) as reader:
        same_cases = reader.same(cases)
        histories = reader.histories([p.name for p in rules], [f.finding for f in same_cases])
        usage, under_way = reader.usage(warehouse, rules, at), reader.count_open()
        requested = reader.record.approval_requests if reader.record else ()
        for case in same_cases:
            begun = under_way.get(case.finding.subject.cluster, 0)
            usage = msgspec.structs.replace(usage, concurrent=begun)
            for rule in rules:
                history = histories.get((rule.name, case.finding.id), case.history)
                case_facts = msgspec.structs.replace(case, history=history)
                answers = answer_gates(rule, case_facts, usage, at, requested)
                answered_cases.append((case.finding, rule.name, tuple(answers)))
    return tuple(answered_cases)


def run_backtest(
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
        UsageError: there is no history, it is too short, or the policy matches findings of several
            analyzers.
    """
    window = find_history_window(warehouse, since, now, cluster)
    analyzer = _load_analyzer(settings, rule)
    is_replayable = isinstance(analyzer, Replayable)
    times = build_time_grid(window, step or (STEP if is_replayable else SLOW_STEP))
    extent = coverage.find_extent(warehouse, cluster)
    begin = max(window.start - WARM_UP, extent.start) if extent else window.start
    whole = Window(begin, times[-1])
    if isinstance(analyzer, Replayable):
        past: Any = analyzer.replay(warehouse, whole, times)
    else:
        past = replay_analyzer(analyzer, warehouse, whole, times, windows.DEFAULT_LENGTH)
    end = max(window.end, times[-1])
    return replay(
        rule,
        past,
        warehouse,
        Window(begin, end),
        times,
        within,
        settings=settings.actions,
        cluster=cluster,
        exact=not is_replayable,
    )


def find_history_window(
    warehouse: "Warehouse", since: str, now: datetime, cluster: str | None = None
) -> Window:
    """Return the requested window, as far as there are rows.

    Raises:
        UsageError: there are no rows at all, or none in it.
    """
    coverage.require_cluster(warehouse, cluster)
    extent = coverage.find_extent(warehouse, cluster)
    if extent is None:
        raise UsageError(
            "the warehouse holds no telemetry: there is nothing to replay",
            hint="fallow import, fallow collect or fallow demo bring some in",
        )
    window = windows.parse(since, now)
    coverage.require_data(window, extent, cluster)
    return Window(max(window.start, extent.start), min(window.end, extent.end, now))


def build_time_grid(window: Window, step: timedelta) -> list[datetime]:
    """Return the times of a replay: equally spaced, on multiples of five minutes.

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
            f"{windows.format_window(window)} is shorter than a step of {format_duration(seconds)}",
            hint="ask for more history, or a smaller --step",
        )
    return [begin + n * step for n in range(count)]


def get_journal_path(settings: Settings) -> Path:
    """Return the path of the journal."""
    return settings.actions.journal or settings.home / "journal.sqlite"


def freeze_file(settings: Settings) -> Path:
    """Return the path of the file whose existence freezes everything."""
    return settings.actions.freeze_file or settings.home / "FREEZE"


def record_backtest(
    settings: Settings, backtest: "Backtest", now: datetime, *, actor: str = ""
) -> None:
    """Record a backtest's verdict for the loop: `trusted` if the reversal rate is proved."""
    figures = {
        "fingerprint": backtest.fingerprint,
        "since": backtest.window.start.isoformat(),
        "until": backtest.window.end.isoformat(),
        "step_s": backtest.step.total_seconds(),
        "stops": len(backtest.stops),
        "judged": backtest.judged,
        "reversed": backtest.reversals,
        "rate": backtest.rate,
        "interval": list(backtest.interval),
        "upper_end": backtest.proof.upper_end,
        "within_s": backtest.within.total_seconds(),
        "declared": backtest.declared,
        "gpu_hours": backtest.gpu_hours,
        "met": backtest.met,
    }
    who = actor or "fallow"
    with Journal.open(get_journal_path(settings), lambda: now, actor=who) as journal:
        rows = [("backtested", backtest.policy, figures)]
        if backtest.met:
            rows.append(("trusted", backtest.policy, {**figures, "by": "backtest"}))
        journal.extend(rows)


class _JournalReader:
    """The journal, if there is one: its data about cases, and the used budgets."""

    def __init__(self, settings: Settings) -> None:
        self._path = get_journal_path(settings)
        self.record: JournalState | None = None
        self._file = freeze_file(settings)

    def __enter__(self) -> Self:
        if self._path.is_file():
            self._journal = Journal.open(self._path, _refuse_clock, write=False)
            self.record = JournalState(self._journal).catch_up()
        return self

    def __exit__(self, *_: object) -> None:
        if self.record is not None:
            self._journal.close()

    def same(self, facts: Sequence[Facts]) -> list[Facts]:
        """Return facts with the ids of the cases in the journal."""
        return [*facts] if self.record is None else self.record.continue_cases(facts)

    def histories(
        self, names: Sequence[str], findings: Sequence[Finding]
    ) -> Mapping[tuple[str, str], CaseHistory]:
        """Return the history of each case, by policy and finding."""
        return {} if self.record is None else self.record.histories(names, findings)

    def usage(
        self, warehouse: "Warehouse", rules: "Sequence[Policy]", at: datetime
    ) -> "BudgetUsage":
        """Return the used budgets, and the fleet that they are shares of."""
        usage = msgspec.structs.replace(read_fleet(warehouse, at), frozen=self._explain_freeze())
        record, since = self.record, at - get_horizon(rules)
        if has_fleet_budget(rules):
            usage = add_other_actions(usage, warehouse, warehouse.settings, since)
        if record is None:
            return usage
        usage = msgspec.structs.replace(
            usage,
            uses=record.uses(since),
            acted=record.count_by_policy(),
        )
        return add_trust(usage, record, rules)

    def count_open(self) -> Mapping[str, int]:
        """Return how many actions of the journal are under way, by cluster."""
        open_actions = [] if self.record is None else self.record.list_open()
        return Counter(state.action.decision.subject[0] for state in open_actions)

    def _explain_freeze(self) -> str | None:
        """Return why the journal or the freeze file stops everything; None = they do not."""
        record = self.record
        if record is not None and record.frozen is not None:
            return f"frozen by {record.frozen.by}: {record.frozen.why}"
        if record is not None and record.outdated:
            return f"the journal is not reconciled with the cluster: {record.outdated}"
        return f"frozen: the file {self._file} exists" if self._file.exists() else None


def _refuse_clock() -> datetime:
    raise RuntimeError("a plan writes nothing into the journal")


def gather_cases(
    warehouse: "Warehouse",
    settings: Settings,
    *,
    at: datetime,
    cluster: str | None,
    names: Sequence[str] = (),
) -> tuple[list[Facts], list[str]]:
    """Return the facts of what analyzers (the named ones; none = all) find now, and notes.

    The judged window ends at that time, however old the data are. Idle work is judged over the
    hours that its verdict needs, and over all of its time if it has been idle for longer. The
    others judge the last days, as `fallow analyze` does. A finding that continues a stored case has
    its id and start.

    Raises:
        UsageError: there is no telemetry, or no row before that time.
    """
    extent = windows.require_extent(warehouse, cluster, inventory=True)
    if extent.start >= at:
        raise UsageError(
            f"no data before {at:%Y-%m-%d %H:%M} UTC; data are from {coverage.format_span(extent)}",
            hint=f"the plan of then: --at {extent.end:%Y-%m-%dT%H:%M}",
        )
    # Only what exists at this time may be acted upon: old data do not move the window back.
    window = Window(max(extent.start, at - windows.DEFAULT_LENGTH), at)
    notes = []
    if at - extent.end > STALE_AFTER:
        age = format_duration((at - extent.end).total_seconds())
        notes.append(
            f"the last sample is {age} old: nothing can be acted upon "
            f"(--at {extent.end:%Y-%m-%dT%H:%M} shows the plan of then)"
        )
    since = min(window.start, max(extent.start, window.end - settings.idle.history))
    longer = Window(since, window.end)
    views = build_views_with_identities(warehouse, settings, window, at)
    findings: list[Finding] = []
    for name, analyzer in analyzer_runs.load_analyzers(settings, names).items():
        try:
            if isinstance(analyzer, FindsLatest):
                findings += analyzer.find_latest(views, longer, settings.idle.lookback)
            else:
                findings += analyzer.find(views, window)
        except TemporaryError:
            raise
        except FallowError as error:
            notes.append(f"{name} is withheld: {error.message}")
        except Exception as error:  # noqa: BLE001  (a fault in one plugin is that plugin's)
            notes.append(f"{name} is withheld: {plugin_runs.log_failure('analyzer', name, error)}")
    whole = remove_overlaps([f for f in findings if cluster in (None, f.subject.cluster)])
    facts = gather_facts(views, case_identity.resolve(views, whole).findings, at)
    facts, unknown = add_reasons(settings, facts)
    return facts, [*notes, *unknown]


def _load_analyzer(settings: Settings, rule: "Policy") -> Any:
    wanted = rule.match.analyzer or ("*",)
    names = [n for n in plugins.find_installed("analyzers") if is_any_match(wanted, n)]
    if len(names) != 1:
        raise UsageError(
            f"policy {rule.name!r} matches findings of {len(names)} analyzers",
            hint="a back-test replays one: let match.analyzer name it",
        )
    return analyzer_runs.load_analyzers(settings, names)[names[0]]


def _list_unjudged_reasons(
    warehouse: "Warehouse", settings: Settings, at: datetime, key: tuple[str, ...]
) -> tuple[str, ...]:
    window = Window(at - timedelta(days=1), at)
    reasons = []
    for name, analyzer in analyzer_runs.load_analyzers(settings).items():
        if not isinstance(analyzer, ReportsUnjudged):
            continue
        try:
            doubts = [*analyzer.unjudged(warehouse, window)]
        except TemporaryError:
            raise
        except FallowError:
            continue
        reasons += [
            f"{name}: {reason}"
            for d in doubts
            if _build_key(d.subject) == key
            for reason in d.reasons
        ]
    return tuple(dict.fromkeys(reasons))


def _build_key(subject: Subject) -> tuple[str, ...]:
    return subject.cluster, subject.namespace, subject.workload_kind, subject.workload
