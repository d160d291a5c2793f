"""Recommend what would remove the waste of a finding: by kind of workload, always reversible.

    suspected                   ask the owner
    confirmed, not actionable   notify the owner
    confirmed and actionable    the kind's own stop verb (`verbs.csv`), with its undo
    some ranks idle             ask for fewer devices, never stop
    stalled and confirmed       the kind's own stop verb where a checkpoint is known
    has recommendations         the recommendations of its analyzer

Nothing is ever deleted, and a workload in `fallow/protections.csv` is never stopped. The verbs,
their undo and the losses are those of the objects' own controllers: a wrong switch has no effect or
does damage.
"""

from collections.abc import Collection, Iterable
from decimal import ROUND_DOWN, ROUND_HALF_EVEN, Decimal
from functools import cache, lru_cache

import msgspec

from capacity.queue.exclusions import EXCLUDED
from capacity.queue.suspensions import RESUMABLE_KINDS
from fallow.action_models import Facts
from fallow.case_identity import get_judged_part
from fallow.idle_details import Hold, read_idle_details
from fallow.models import STALLED_JOB, Claim, Finding, Recommendation, State
from fallow.protections import read_protections
from fallow.resources import read_table
from fallow.stalled_details import read_stalled_details

DAY_S = 86_400
_SMALLEST = Decimal("0.01")
_STORED = Decimal("0.0001")
NOTIFY_OWNER, REQUEST_TO_OWNER = "notify owner", "ask owner"
"""Recommendations that only a person carries out: nothing happens automatically."""
RESTART = "restart"
ELSEWHERE = "restart elsewhere"


class Verb(msgspec.Struct, frozen=True):
    """How one kind of workload is stopped and started again."""

    workload_kind: str
    verb: str
    how: str
    undo: str
    lost: str
    caution: str


def recommend(finding: Finding) -> tuple[Recommendation, ...]:
    """Return what would remove a finding's waste, the strongest first.

    Rates per day are the finding's own: the daily waste if nothing changes.
    """
    if finding.recommendations:
        return finding.recommendations
    if finding.verdict == "partly idle":
        return (_recommend_fewer(finding),)
    if finding.kind == STALLED_JOB:
        return _recommend_stalled(finding)
    return _recommend_idle(finding) if finding.verdict == "idle" else ()


def _recommend_idle(finding: Finding) -> tuple[Recommendation, ...]:
    if finding.evidence != "confirmed":
        return (_advise_question(finding),)
    why_not = explain_protection(finding.subject.workload_kind, finding.subject.namespace)
    verb = read_verbs().get(finding.subject.workload_kind)
    may_stop = read_idle_details(finding).actionable or (
        is_only_held(finding) and all(hold.name for hold in list_holds(finding))
    )
    if not may_stop or why_not is not None or verb is None:
        return (_tell(finding, why_not, verb),)
    return (_stop(finding, verb), _tell(finding, None, verb))


def list_holds(finding: Finding) -> tuple[Hold, ...]:
    """Return what holds an idle workload, and what a policy names to lift it."""
    return read_idle_details(finding).held_by or ()


def is_only_held(finding: Finding) -> bool:
    """Return whether only what holds it keeps a finding from being acted upon."""
    details = read_idle_details(finding)
    return bool(details.held_by) and not details.reasons and "vetoed" not in finding.details


def add_recommendations(findings: Iterable[Finding]) -> list[Finding]:
    """Return findings with their recommendations."""
    return [msgspec.structs.replace(f, recommendations=recommend(f)) for f in findings]


@lru_cache(maxsize=4096)
def explain_protection(workload_kind: str, namespace: str) -> str | None:
    """Return why a workload is never stopped, or None."""
    values = {"kind": workload_kind, "namespace": namespace}
    return next((row.why for row in read_protections() if values.get(row.where) == row.key), None)


@cache
def read_verbs() -> dict[str, Verb]:
    """Return the stop verb of each kind of workload."""
    rows = read_table("actions", "verbs.csv")
    return {row["workload_kind"]: Verb(**row) for row in rows}


@cache
def stop_verbs() -> frozenset[str]:
    """Return the verbs that stop a workload: all of it must be idle, and its owner notified."""
    return frozenset({"evict", RESTART, ELSEWHERE, *(verb.verb for verb in read_verbs().values())})


def list_restartable_kinds() -> frozenset[str]:
    """Return the kinds that can be restarted through their controller's own handle."""
    return RESUMABLE_KINDS


def choose_restart(facts: Facts, verbs: Collection[str]) -> Facts:
    """Return the facts of a stalled job with a restart as their advice, where a policy asks for it.

    `verbs` are those that the policy may carry out. The advice is another only where the stop of
    the job was recommended, so where a checkpoint is known and nothing protects it. Where its
    incident names nodes that it should leave, the restart excludes them if the policy allows that.
    """
    advice = facts.recommendation
    stop = read_verbs().get(facts.finding.subject.workload_kind)
    if (
        facts.finding.kind != STALLED_JOB
        or not {RESTART, ELSEWHERE} & set(verbs)
        or stop is None
        or advice.verb != stop.verb
        or stop.workload_kind not in list_restartable_kinds()
    ):
        return facts
    incident = facts.incident
    leaves = incident is not None and incident.step == ELSEWHERE and bool(incident.nodes)
    if not (leaves and ELSEWHERE in verbs) and RESTART not in verbs:
        return facts
    nodes = incident.nodes if incident is not None and leaves and ELSEWHERE in verbs else ()
    away = f", away from {', '.join(nodes)}" if nodes else ""
    restart = msgspec.structs.replace(
        advice,
        verb=ELSEWHERE if nodes else RESTART,
        parameters={**advice.parameters, EXCLUDED: list(nodes)} if nodes else advice.parameters,
        why=f"stalled, confirmed: {stop.how}, and back when its pods are gone{away}",
        undo="none: it runs again; while its pods end, the undo resumes it",
        caution=f"lost: {stop.lost}",
    )
    return msgspec.structs.replace(facts, recommendation=restart)


def _stop(finding: Finding, verb: Verb) -> Recommendation:
    return Recommendation(
        verb=verb.verb,
        target=format_target(finding),
        why=f"idle, confirmed by independent signals: {verb.how}",
        reversible=True,
        undo=verb.undo,
        gpu_hours_per_day=compute_gpu_hours_per_day(finding),
        usd_per_day=compute_usd_per_day(finding),
        caution="; ".join(
            filter(
                None,
                (*(hold.why for hold in list_holds(finding)), f"lost: {verb.lost}", verb.caution),
            )
        ),
        claims=build_claims(finding),
    )


def _tell(finding: Finding, why_not: str | None, verb: Verb | None) -> Recommendation:
    caution: str | None
    if why_not is not None:
        caution = f"Fallow never stops it: {why_not}"
    elif verb is None:
        caution = f"Fallow knows no way to stop a {finding.subject.workload_kind} and undo it"
    else:
        caution = "; ".join(read_idle_details(finding).reasons) or None
    return Recommendation(
        verb=NOTIFY_OWNER,
        target=format_target(finding),
        why=f"idle and confirmed; {verb.how} when done" if verb else "idle and confirmed",
        reversible=True,
        gpu_hours_per_day=compute_gpu_hours_per_day(finding),
        usd_per_day=compute_usd_per_day(finding),
        caution=caution,
        claims=build_claims(finding),
    )


def _advise_question(finding: Finding) -> Recommendation:
    return Recommendation(
        verb=REQUEST_TO_OWNER,
        target=format_target(finding),
        why="idle by one signal, and no independent signal confirms it: ask before anything else",
        reversible=True,
        gpu_hours_per_day=compute_gpu_hours_per_day(finding),
        usd_per_day=compute_usd_per_day(finding),
        claims=build_claims(finding),
    )


def _recommend_fewer(finding: Finding) -> Recommendation:
    details = read_idle_details(finding)
    return Recommendation(
        verb="request fewer GPUs",
        target=format_target(finding),
        why=f"{details.devices_idle} of {details.devices_held} devices were left unused while the "
        "others computed",
        reversible=True,
        undo="restore the request",
        gpu_hours_per_day=compute_gpu_hours_per_day(finding),
        usd_per_day=compute_usd_per_day(finding),
        caution="never stop it: the other devices are at work",
        claims=build_claims(finding),
    )


def _recommend_stalled(finding: Finding) -> tuple[Recommendation, ...]:
    """Recommend for a job that hangs; a stop only where the job resumes from a checkpoint."""
    subject, details = finding.subject, read_stalled_details(finding)
    why_not = explain_protection(subject.workload_kind, subject.namespace)
    verb = read_verbs().get(subject.workload_kind)
    is_confirmed = finding.evidence == "confirmed"
    caution = why_not and f"Fallow never stops it: {why_not}"
    if caution is None and not details.checkpoint:
        caution = "no checkpoint of it is known: annotate fallow.dev/checkpoint-interval"
    notice = Recommendation(
        verb=NOTIFY_OWNER if is_confirmed else REQUEST_TO_OWNER,
        target=format_target(finding),
        why=f"{details.why or 'it is stalled'}: restart it from its last checkpoint",
        reversible=True,
        gpu_hours_per_day=compute_gpu_hours_per_day(finding),
        usd_per_day=compute_usd_per_day(finding),
        caution=caution,
        claims=build_claims(finding),
    )
    if not (is_confirmed and details.actionable and details.checkpoint) or why_not or verb is None:
        return (notice,)
    stop = msgspec.structs.replace(
        notice,
        verb=verb.verb,
        why=f"stalled, confirmed: {verb.how}",
        undo=verb.undo,
        caution="; ".join(filter(None, (f"lost: {verb.lost}", verb.caution))),
    )
    return (stop, notice)


def format_target(finding: Finding) -> str:
    """Format the object to act on as Kind/namespace/name."""
    subject = finding.subject
    return f"{subject.workload_kind}/{subject.namespace}/{subject.workload}"


def build_claims(finding: Finding) -> tuple[Claim, ...]:
    """Return the ledger hours that a finding claims: the idle hours of its workload.

    A job that hangs lists its hours by state (`hours_of`): their sum is the finding's hours, each
    counted once.
    """
    subject = finding.subject
    hours: dict[State, float] = {"idle": finding.gpu_hours}
    if finding.kind == STALLED_JOB:
        hours = finding.details.get("hours_of", {"low": finding.gpu_hours})
    return tuple(
        Claim(
            cluster=subject.cluster,
            namespace=subject.namespace,
            workload_kind=subject.workload_kind,
            workload=subject.workload,
            pool=None,
            state=state,
            gpu_hours=part_hours,
            usd=_compute_part(finding, part_hours),
        )
        for state, part_hours in hours.items()
    )


def _compute_part(finding: Finding, hours: float) -> Decimal | None:
    """Return the cost of a part of a finding's hours; None = they have no price."""
    if finding.usd is None or hours == finding.gpu_hours:
        return finding.usd
    return finding.usd * Decimal(repr(hours)) / Decimal(repr(finding.gpu_hours))


def compute_gpu_hours_per_day(finding: Finding) -> float:
    """Return the GPU-hours wasted per day, at the rate of the last judged part."""
    start, hours, _ = get_judged_part(finding)
    return round(hours * DAY_S / (finding.window.end - start).total_seconds(), 4)


def compute_usd_per_day(finding: Finding) -> Decimal | None:
    """Return the dollars wasted per day, at the rate of the last judged part; None = no price."""
    start, _, usd = get_judged_part(finding)
    if usd is None:
        return None
    per_day = usd * DAY_S / Decimal(repr((finding.window.end - start).total_seconds()))
    # A finding's dollars have six decimals: an amount lost beyond them is less than a cent.
    return per_day.quantize(_STORED, ROUND_HALF_EVEN).quantize(_SMALLEST, ROUND_DOWN)
