"""Gates of the object and its surroundings: obstacles, pending workloads, and capacity freed."""

from collections.abc import Iterator

from actions.gates.registry import GateInput, Refusal, format_span, register_gate
from fallow.action_models import Waiter
from fallow.window import format_duration


@register_gate("identity")
def _check_identity(case: GateInput) -> Iterator[Refusal]:
    if case.facts.finding.subject.namespace and not case.facts.uid:
        why = case.facts.unidentified or "a name may be somebody else's by now"
        yield Refusal(f"its uid is unknown: {why}")


@register_gate("fights")
def _check_fights(case: GateInput) -> Iterator[Refusal]:
    for other in case.facts.autoscaled_by:
        yield Refusal(f"{other} would fight back")


@register_gate("age")
def _check_age(case: GateInput) -> Iterator[Refusal]:
    created_at, min_age = case.facts.created_at, case.policy.min_age
    if not min_age:
        return
    if created_at is None:
        yield Refusal("its age is unknown")
    elif case.now - created_at < min_age:
        old = format_duration(max((case.now - created_at).total_seconds(), 0))
        yield Refusal(f"it is {old} old, min_age is {format_span(min_age)}", created_at + min_age)


@register_gate("benefit")
def _check_benefit(case: GateInput) -> Iterator[Refusal]:
    advice = case.facts.recommendation
    gains = [w for w in (advice.gpu_hours_per_day, case.facts.usd_per_day) if w is not None]
    if gains and not any(w > 0 for w in gains):
        yield Refusal("it would free nothing")
    if case.policy.on_benefit and case.facts.removes_node is not True:
        is_unknown = case.facts.waiting is None or case.facts.removes_node is None
        if not any(waiter.admitted is True for waiter in case.facts.waiting or ()):
            text = (
                "whether anybody gains is unknown"
                if is_unknown
                else "no waiting workload gains by it"
            )
            yield Refusal(f"{text}: no waiter is admitted, no node goes (on_benefit)")


@register_gate("pressure")
def _check_pressure(case: GateInput) -> Iterator[Refusal]:
    if not case.policy.on_pressure:
        return
    waiting = case.facts.waiting
    if waiting is None:
        yield Refusal("who waits is unknown (on_pressure)")
    elif not any(waiter.admitted is True for waiter in waiting):
        refusals = [
            f"{w.workload_kind}/{w.namespace}/{w.workload}: {_explain_environment(w)}"
            for w in waiting
        ]
        yield Refusal("; ".join(refusals) or "no workload waits (on_pressure)")


def _explain_environment(waiter: Waiter) -> str:
    return waiter.why or "these GPUs would not admit it"
