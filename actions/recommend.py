"""What would remove the waste a finding shows: by kind of workload, always reversible.

    suspected               ask the owner
    confirmed, not actionable   tell the owner
    confirmed and actionable    the kind's own stop verb (`verbs.csv`), with its undo
    some ranks idle         ask for fewer devices, never stop
    stalled and confirmed   the kind's own stop verb where a checkpoint is known
    recommended already     what its analyzer recommends

Nothing is ever deleted, and what `fallow/protections.csv` lists is never stopped. The verbs, how
they are undone and what is lost are those of the objects' own controllers: the wrong handle does
nothing or does damage.
"""

import csv
from collections.abc import Iterable
from decimal import ROUND_DOWN, Decimal
from functools import cache
from importlib.resources import files

import msgspec

from fallow.continuity import judged_part
from fallow.nouns import Claim, Finding, Recommendation, State
from fallow.protections import protections

DAY_S = 86_400
_SMALLEST = Decimal("0.01")
NOTIFY_OWNER, ASK_OWNER = "notify owner", "ask owner"
"""Advice that only a person carries out: nothing happens by itself."""
STALLED = "stalled_job"
"""Kind of the findings of analyzers/stalled: a job that hangs."""
_HELD: dict[str, tuple[State, ...]] = {"spin": ("low", "productive"), "rest": ("idle",)}
"""States of the ledger that a stalled job's hours are in, by how it hangs."""


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

    Rates per day are the finding's own: as long as nothing changes, this is wasted each day.
    """
    if finding.recommendations:
        return finding.recommendations
    if finding.verdict == "partly idle":
        return (_fewer(finding),)
    if finding.kind == STALLED:
        return _stalled(finding)
    return _idle(finding) if finding.verdict == "idle" else ()


def _idle(finding: Finding) -> tuple[Recommendation, ...]:
    if finding.evidence != "confirmed":
        return (_ask(finding),)
    why_not = never(finding.subject.workload_kind, finding.subject.namespace)
    verb = verbs().get(finding.subject.workload_kind)
    if not finding.details.get("actionable") or why_not is not None or verb is None:
        return (_tell(finding, why_not, verb),)
    return (_stop(finding, verb), _tell(finding, None, verb))


def advised(findings: Iterable[Finding]) -> list[Finding]:
    """Return findings with their recommendations."""
    return [msgspec.structs.replace(f, recommendations=recommend(f)) for f in findings]


def never(workload_kind: str, namespace: str) -> str | None:
    """Say why a workload is never stopped, or None."""
    here = {"kind": workload_kind, "namespace": namespace}
    return next((row.why for row in protections() if here.get(row.where) == row.key), None)


@cache
def verbs() -> dict[str, Verb]:
    """Return the stop verb of each kind of workload."""
    rows = csv.DictReader(_text("verbs.csv").splitlines())
    return {row["workload_kind"]: Verb(**row) for row in rows}


@cache
def stops() -> frozenset[str]:
    """Return the verbs that stop a workload: all of it has to be idle, and its owner told."""
    return frozenset({"evict", *(verb.verb for verb in verbs().values())})


def _text(name: str) -> str:
    return files("actions").joinpath(name).read_text(encoding="utf-8")


def _stop(finding: Finding, verb: Verb) -> Recommendation:
    return Recommendation(
        verb=verb.verb,
        target=target(finding),
        why=f"idle, confirmed by independent witnesses: {verb.how}",
        reversible=True,
        undo=verb.undo,
        gpu_hours_per_day=gpu_hours_per_day(finding),
        usd_per_day=usd_per_day(finding),
        caution="; ".join(filter(None, (f"lost: {verb.lost}", verb.caution))),
        claims=claims(finding),
    )


def _tell(finding: Finding, why_not: str | None, verb: Verb | None) -> Recommendation:
    caution: str | None
    if why_not is not None:
        caution = f"Fallow never stops it: {why_not}"
    elif verb is None:
        caution = f"Fallow knows no way to stop a {finding.subject.workload_kind} and undo it"
    else:
        caution = "; ".join(finding.details.get("reasons", ())) or None
    return Recommendation(
        verb=NOTIFY_OWNER,
        target=target(finding),
        why=f"idle and confirmed; {verb.how} when done" if verb else "idle and confirmed",
        reversible=True,
        gpu_hours_per_day=gpu_hours_per_day(finding),
        usd_per_day=usd_per_day(finding),
        caution=caution,
        claims=claims(finding),
    )


def _ask(finding: Finding) -> Recommendation:
    return Recommendation(
        verb=ASK_OWNER,
        target=target(finding),
        why="looks idle, but no independent witness confirms it: ask before anything else",
        reversible=True,
        gpu_hours_per_day=gpu_hours_per_day(finding),
        usd_per_day=usd_per_day(finding),
        claims=claims(finding),
    )


def _fewer(finding: Finding) -> Recommendation:
    idle, held = finding.details.get("devices_idle"), finding.details.get("devices_held")
    return Recommendation(
        verb="request fewer GPUs",
        target=target(finding),
        why=f"{idle} of {held} devices were left unused while the others computed",
        reversible=True,
        undo="restore the request",
        gpu_hours_per_day=gpu_hours_per_day(finding),
        usd_per_day=usd_per_day(finding),
        caution="never stop it: the other devices are at work",
        claims=claims(finding),
    )


def _stalled(finding: Finding) -> tuple[Recommendation, ...]:
    """Advise about a job that hangs; it is stopped only where it goes on from a checkpoint."""
    subject, saved = finding.subject, finding.details.get("checkpoint")
    why_not = never(subject.workload_kind, subject.namespace)
    verb = verbs().get(subject.workload_kind)
    sure = finding.evidence == "confirmed"
    caution = why_not and f"Fallow never stops it: {why_not}"
    if caution is None and not saved:
        caution = "no checkpoint of it is known: annotate fallow.dev/checkpoint-interval"
    tell = Recommendation(
        verb=NOTIFY_OWNER if sure else ASK_OWNER,
        target=target(finding),
        why=f"{finding.details.get('why', 'it is stalled')}: restart it from its last checkpoint",
        reversible=True,
        gpu_hours_per_day=gpu_hours_per_day(finding),
        usd_per_day=usd_per_day(finding),
        caution=caution,
        claims=claims(finding),
    )
    if not (sure and finding.details.get("actionable") and saved) or why_not or verb is None:
        return (tell,)
    stop = msgspec.structs.replace(
        tell,
        verb=verb.verb,
        why=f"stalled, confirmed: {verb.how}",
        undo=verb.undo,
        caution="; ".join(filter(None, (f"lost: {verb.lost}", verb.caution))),
    )
    return (stop, tell)


def target(finding: Finding) -> str:
    """Return the object to act on as people write it: Kind/namespace/name."""
    subject = finding.subject
    return f"{subject.workload_kind}/{subject.namespace}/{subject.workload}"


def claims(finding: Finding) -> tuple[Claim, ...]:
    """Return the ledger's hours that a finding is about: the workload's idle ones.

    Those of a job that spins are low or productive; together they never save more than it shows.
    """
    whose = finding.subject
    states: tuple[State, ...] = ("idle",)
    if finding.kind == STALLED:
        states = _HELD[finding.details["how"]]
    return tuple(
        Claim(
            cluster=whose.cluster,
            namespace=whose.namespace,
            workload_kind=whose.workload_kind,
            workload=whose.workload,
            pool=None,
            state=state,
            gpu_hours=finding.gpu_hours,
            usd=finding.usd,
        )
        for state in states
    )


def gpu_hours_per_day(finding: Finding) -> float:
    """Return the GPU-hours that go to waste each day at the rate that was judged last."""
    start, hours, _ = judged_part(finding)
    return round(hours * DAY_S / (finding.window.end - start).total_seconds(), 4)


def usd_per_day(finding: Finding) -> Decimal | None:
    """Return the dollars that go to waste each day at the rate judged last, None = no price."""
    start, _, usd = judged_part(finding)
    if usd is None:
        return None
    per_day = usd * DAY_S / Decimal(repr((finding.window.end - start).total_seconds()))
    return per_day.quantize(_SMALLEST, ROUND_DOWN)
