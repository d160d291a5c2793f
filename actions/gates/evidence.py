"""What is asked of the evidence: is it whole, fresh, of one mind, and about nobody else?"""

import math
from collections.abc import Iterator, Mapping

from actions.gates.case import Case, No, gate
from actions.recommend import stops
from fallow.window import format_duration

LEAST_COVERAGE = 0.95
MOST_SKEW_S = 30.0
MOST_INTERVALS = 2


@gate("verdict")
def _verdict(case: Case) -> Iterator[No]:
    verdict, verb = case.facts.finding.verdict, case.facts.recommendation.verb
    if verb in stops() and verdict != "idle":
        yield No(f"the verdict is {verdict}: only what is idle as a whole is stopped")
    elif verdict not in {"idle", "partly idle", "wasteful"}:
        yield No(f"the verdict is {verdict}")


@gate("evidence")
def _evidence(case: Case) -> Iterator[No]:
    finding = case.facts.finding
    if finding.evidence != "confirmed":
        yield No(f"the evidence is {finding.evidence}")
    if finding.verdict == "idle" and finding.details.get("actionable") is not True:
        why = "; ".join(map(str, finding.details.get("reasons") or ()))
        yield No(f"not enough witnesses to act: {why or 'the finding is not actionable'}")


@gate("wanted")
def _wanted(case: Case) -> Iterator[No]:
    """Ask that the probability of a return is within the rate of reversals that is declared."""
    finding, rate = case.facts.finding, case.policy.regret.rate
    if finding.analyzer != "idle" or case.facts.recommendation.verb not in stops():
        return
    estimate = finding.details.get("wanted")
    if not isinstance(estimate, Mapping):
        if finding.details.get("wanted_asked") is not False:
            yield No("whether it is wanted soon is unknown: its hours are not rolled up yet")
        return
    probability, exposures = float(estimate["probability"]), int(estimate["exposures"])
    if probability <= rate:
        return
    within, returns = estimate["within"], int(estimate["returns"])
    counted = (
        f"{returns} returns of {exposures} rests as long and days of its own "
        f"({estimate['own_days']} its own, {estimate['own_returns']} returns)"
    )
    if not returns:
        least = math.ceil(0.5 / rate - 1) if rate > 0 else 0
        needed = f"needs {least} without a return" if least else "a rate of 0 proves nothing"
        yield No(
            f"whether it is wanted within {within} is unknown: too little history, {counted}; "
            f"{needed} for {rate:.1%}"
        )
        return
    yield No(
        f"wanted again within {within} with a probability of {probability:.1%}, above {rate:.1%}: "
        f"{counted}"
    )


@gate("coverage")
def _coverage(case: Case) -> Iterator[No]:
    seen = case.facts.coverage
    if seen is None:
        yield No("coverage is unknown")
    elif not seen >= LEAST_COVERAGE:
        yield No(f"coverage is {seen:.1%}, below {LEAST_COVERAGE:.0%}")


@gate("fresh")
def _fresh(case: Case) -> Iterator[No]:
    facts, now = case.facts, case.now
    if facts.at > now:
        yield No(f"the facts are of {facts.at:%F %T}, later than now")
    if facts.seen_until is None or facts.interval_s is None:
        yield No("the last look or the interval between looks is unknown")
        return
    age = (now - facts.seen_until).total_seconds()
    if not 0 < facts.interval_s < float("inf"):
        yield No(f"an interval of {facts.interval_s:g} s is none")
    elif age > MOST_INTERVALS * facts.interval_s:
        limit = format_duration(MOST_INTERVALS * facts.interval_s)
        yield No(f"the last look is {format_duration(age)} old, older than {limit}")
    elif age < -MOST_SKEW_S:
        yield No(f"the last look is {format_duration(-age)} in the future")


@gate("conflict")
def _conflict(case: Case) -> Iterator[No]:
    for conflict in case.facts.conflicts:
        yield No(conflict)


@gate("skew")
def _skew(case: Case) -> Iterator[No]:
    skew = case.facts.skew_s
    if skew is None:
        yield No("how far the sources' clocks differ is unknown")
    elif not abs(skew) <= MOST_SKEW_S:
        yield No(f"the sources' clocks differ by {abs(skew):g} s, more than {MOST_SKEW_S:g} s")


@gate("ready")
def _ready(case: Case) -> Iterator[No]:
    if case.facts.nodes_ready is not True:
        yield No(_unless(case.facts.nodes_ready, "a node is not ready", "whether nodes are ready"))


@gate("shared")
def _shared(case: Case) -> Iterator[No]:
    if case.facts.shared is not False:
        what = "devices are shared, or the share is an estimate"
        yield No(what if case.facts.shared else "whether devices are shared is unknown")


@gate("resolved")
def _resolved(case: Case) -> Iterator[No]:
    if case.facts.owner_resolved is not True:
        known = case.facts.owner_resolved
        yield No(_unless(known, "the top owner could not be resolved", "the top owner"))


@gate("owner")
def _owner(case: Case) -> Iterator[No]:
    if not case.facts.owner:
        yield No("nobody is known to be told")


@gate("veto")
def _veto(case: Case) -> Iterator[No]:
    for veto in case.facts.vetoes:
        yield No(veto)


def _unless(known: bool | None, no: str, what: str) -> str:
    return no if known is False else f"{what}: unknown"
