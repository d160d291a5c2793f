"""Gates of the evidence: is it complete, fresh, free of conflicts, and about this owner only?"""

import math
from collections.abc import Iterator, Mapping

from actions.gates.registry import GateInput, Refusal, register_gate
from actions.policy.matching import is_any_match, list_excesses
from actions.recommend import ELSEWHERE, RESTART, is_only_held, list_holds, stop_verbs
from fallow.idle_details import IdleDetails, read_idle_details
from fallow.models import STALLED_JOB
from fallow.protections import parse_timestamp
from fallow.stalled_details import StalledDetails, read_stalled_details
from fallow.window import format_duration

LEAST_COVERAGE = 0.95
MOST_SKEW_S = 30.0
MOST_INTERVALS = 2
RESTART_STEPS: Mapping[str, frozenset[str]] = {
    RESTART: frozenset({"restart in place", "rerun from the checkpoint"}),
    ELSEWHERE: frozenset({"restart elsewhere"}),
}
"""Steps of an incident (`steps.csv` of the incidents) that each restart carries out."""


@register_gate("verdict")
def _check_verdict(case: GateInput) -> Iterator[Refusal]:
    finding, verb = case.facts.finding, case.facts.recommendation.verb
    verdict = finding.verdict
    if verb in stop_verbs() and finding.kind == STALLED_JOB:
        if not read_stalled_details(finding).checkpoint:
            yield Refusal("no checkpoint of the job is known: a stop would lose all of its work")
    elif verb in stop_verbs() and verdict != "idle":
        yield Refusal(f"the verdict is {verdict}: only what is idle as a whole is stopped")
    elif verdict not in {"idle", "partly idle", "wasteful"}:
        yield Refusal(f"the verdict is {verdict}")


@register_gate("checkpoint_age")
def _check_checkpoint_age(case: GateInput) -> Iterator[Refusal]:
    """Refuse a stop that would lose more work than the policy allows, or an unknown amount.

    The work is that from the last checkpoint that was seen to the start of the waste: a hung or
    idle job computes nothing after that. An interval that its owner names proves no checkpoint.
    """
    most = case.policy.checkpoint_age
    if most is None or case.facts.recommendation.verb not in stop_verbs():
        return
    checkpoint = read_stalled_details(case.facts.finding).checkpoint
    at = parse_timestamp(checkpoint.at) if checkpoint and checkpoint.at else None
    if at is None:
        yield Refusal("no checkpoint was seen being written (checkpoint_age)")
        return
    age = (case.facts.finding.window.start - at).total_seconds()
    if age < -MOST_SKEW_S:
        yield Refusal(f"its last checkpoint is of {at:%F %T}, after the waste began")
    elif age > most.total_seconds():
        yield Refusal(
            f"its last checkpoint was {format_duration(age)} before, checkpoint_age is "
            f"{format_duration(most.total_seconds())}"
        )


@register_gate("incident")
def _check_incident(case: GateInput) -> Iterator[Refusal]:
    """Refuse a restart that the job's incident does not call for, or that has no room elsewhere."""
    verb, incident = case.facts.recommendation.verb, case.facts.incident
    if incident is None or verb not in RESTART_STEPS:
        return
    about = f"its incident {incident.id} ({incident.cause})"
    if incident.step not in RESTART_STEPS[verb]:
        yield Refusal(f"{about} calls for: {incident.step} ({incident.why})")
    elif verb == ELSEWHERE and incident.room is not True:
        nodes = ", ".join(incident.nodes)
        yield Refusal(
            f"its pods do not fit on nodes other than {nodes}"
            if incident.room is False
            else f"whether its pods fit on nodes other than {nodes} is unknown"
        )


@register_gate("evidence")
def _check_evidence(case: GateInput) -> Iterator[Refusal]:
    finding = case.facts.finding
    if finding.evidence != "confirmed":
        yield Refusal(f"the evidence is {finding.evidence}")
    if finding.kind == STALLED_JOB:
        details: StalledDetails | IdleDetails = read_stalled_details(finding)
    elif finding.verdict == "idle":
        details = read_idle_details(finding)
    else:
        return
    # What only holds it, the gate `held` tells.
    if not details.actionable and not is_only_held(finding):
        why = "; ".join(details.reasons)
        yield Refusal(f"not enough signals to act: {why or 'the finding is not actionable'}")


@register_gate("held")
def _check_held(case: GateInput) -> Iterator[Refusal]:
    """Refuse what requests or its owner hold, but for the holds that the policy names."""
    lifted, facts = case.policy.allow.held_by, case.facts
    stops = facts.recommendation.verb in stop_verbs()
    texts = [
        hold.why
        for hold in list_holds(facts.finding)
        if not is_any_match(lifted, hold.name or None)
    ]
    texts += list_excesses(facts.budgets or () if stops else (), lifted)
    if stops and facts.budgets_unread:
        texts.append(
            "whether a disruption budget covers its pods is unknown: the last poll did not read "
            "all budgets of its cluster"
        )
    yield from map(Refusal, dict.fromkeys(texts))


@register_gate("wanted")
def _check_wanted(case: GateInput) -> Iterator[Refusal]:
    """Refuse unless the probability of a return is within the declared rate of reversals."""
    finding, rate = case.facts.finding, case.policy.reversals.rate
    if finding.analyzer != "idle" or case.facts.recommendation.verb not in stop_verbs():
        return
    details = read_idle_details(finding)
    estimate = details.wanted
    if estimate is None:
        if details.is_return_considered is not False:
            yield Refusal("whether it is wanted soon is unknown: its hours are not rolled up yet")
        return
    probability, within, returns = estimate.probability, estimate.within, estimate.returns
    if probability <= rate:
        return
    counted = (
        f"{returns} returns of {estimate.exposures} rests as long and days of its own "
        f"({estimate.own_days} its own, {estimate.own_returns} returns)"
    )
    if not returns:
        least = math.ceil(0.5 / rate - 1) if rate > 0 else 0
        needed = f"needs {least} without a return" if least else "a rate of 0 proves nothing"
        yield Refusal(
            f"whether it is wanted within {within} is unknown: too little history, {counted}; "
            f"{needed} for {rate:.1%}"
        )
        return
    yield Refusal(
        f"wanted again within {within} with a probability of {probability:.1%}, above {rate:.1%}: "
        f"{counted}"
    )


@register_gate("coverage")
def _check_coverage(case: GateInput) -> Iterator[Refusal]:
    coverage = case.facts.coverage
    if coverage is None:
        yield Refusal("coverage is unknown")
    elif not coverage >= LEAST_COVERAGE:
        yield Refusal(f"coverage is {coverage:.1%}, below {LEAST_COVERAGE:.0%}")


@register_gate("fresh")
def _check_fresh(case: GateInput) -> Iterator[Refusal]:
    facts, now = case.facts, case.now
    if facts.at > now:
        yield Refusal(f"the facts are of {facts.at:%F %T}, later than now")
    if facts.seen_until is None or facts.interval_s is None:
        yield Refusal("the last sample or the scrape interval is unknown")
        return
    age = (now - facts.seen_until).total_seconds()
    if not 0 < facts.interval_s < float("inf"):
        yield Refusal(f"an interval of {facts.interval_s:g} s is none")
    elif age > MOST_INTERVALS * facts.interval_s:
        max_age = format_duration(MOST_INTERVALS * facts.interval_s)
        yield Refusal(f"the last sample is {format_duration(age)} old, older than {max_age}")
    elif age < -MOST_SKEW_S:
        yield Refusal(f"the last sample is {format_duration(-age)} in the future")


@register_gate("conflict")
def _check_conflict(case: GateInput) -> Iterator[Refusal]:
    for conflict in case.facts.conflicts:
        yield Refusal(conflict)


@register_gate("skew")
def _check_skew(case: GateInput) -> Iterator[Refusal]:
    skew = case.facts.skew_s
    if skew is None:
        yield Refusal("how far the sources' clocks differ is unknown")
    elif not abs(skew) <= MOST_SKEW_S:
        yield Refusal(f"the sources' clocks differ by {abs(skew):g} s, more than {MOST_SKEW_S:g} s")


@register_gate("ready")
def _check_ready(case: GateInput) -> Iterator[Refusal]:
    if case.facts.nodes_ready is not True:
        yield Refusal(
            _explain_missing(
                case.facts.nodes_ready, "a node is not ready", "whether nodes are ready"
            )
        )


@register_gate("shared")
def _check_shared(case: GateInput) -> Iterator[Refusal]:
    if case.facts.shared is not False:
        reason = "devices are shared, or the share is an estimate"
        yield Refusal(reason if case.facts.shared else "whether devices are shared is unknown")


@register_gate("resolved")
def _check_resolved(case: GateInput) -> Iterator[Refusal]:
    if case.facts.owner_resolved is not True:
        is_resolved = case.facts.owner_resolved
        yield Refusal(
            _explain_missing(is_resolved, "the top owner could not be resolved", "the top owner")
        )


@register_gate("owner")
def _check_owner(case: GateInput) -> Iterator[Refusal]:
    if not case.facts.owner:
        yield Refusal("no recipient is known")


@register_gate("veto")
def _check_veto(case: GateInput) -> Iterator[Refusal]:
    for veto in case.facts.vetoes:
        yield Refusal(veto)


def _explain_missing(is_met: bool | None, text: str, topic: str) -> str:
    return text if is_met is False else f"{topic}: unknown"
