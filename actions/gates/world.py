"""What is asked of the object and those beside it: who fights, who waits, is anything freed?"""

from collections.abc import Iterator

from actions.gates.case import Case, No, gate, span
from fallow.acting import Waiter
from fallow.window import format_duration


@gate("identity")
def _identity(case: Case) -> Iterator[No]:
    if case.facts.finding.subject.namespace and not case.facts.uid:
        why = case.facts.unidentified or "a name may be somebody else's by now"
        yield No(f"its uid is unknown: {why}")


@gate("fights")
def _fights(case: Case) -> Iterator[No]:
    for other in case.facts.autoscaled_by:
        yield No(f"{other} would fight back")


@gate("age")
def _age(case: Case) -> Iterator[No]:
    born, least = case.facts.created_at, case.policy.min_age
    if not least:
        return
    if born is None:
        yield No("its age is unknown")
    elif case.now - born < least:
        old = format_duration(max((case.now - born).total_seconds(), 0))
        yield No(f"it is {old} old, min_age is {span(least)}", born + least)


@gate("benefit")
def _benefit(case: Case) -> Iterator[No]:
    advice = case.facts.recommendation
    worth = [w for w in (advice.gpu_hours_per_day, case.facts.usd_per_day) if w is not None]
    if worth and not any(w > 0 for w in worth):
        yield No("it would free nothing")
    if case.policy.on_benefit and case.facts.removes_node is not True:
        unknown = case.facts.waiting is None or case.facts.removes_node is None
        if not any(waiter.admitted is True for waiter in case.facts.waiting or ()):
            what = "whether anybody gains is unknown" if unknown else "nobody gains by it"
            yield No(f"{what}: no waiter is admitted, no node goes (on_benefit)")


@gate("pressure")
def _pressure(case: Case) -> Iterator[No]:
    if not case.policy.on_pressure:
        return
    waiting = case.facts.waiting
    if waiting is None:
        yield No("who waits is unknown (on_pressure)")
    elif not any(waiter.admitted is True for waiter in waiting):
        said = [f"{w.workload_kind}/{w.namespace}/{w.workload}: {_why(w)}" for w in waiting]
        yield No("; ".join(said) or "nobody waits (on_pressure)")


def _why(waiter: Waiter) -> str:
    return waiter.why or "these GPUs would not admit it"
