"""Gates of the history: earlier actions, the owner's protections, and approvals."""

from collections.abc import Iterator
from datetime import UTC
from itertools import zip_longest

from actions.gates.registry import GateInput, Refusal, format_span, get_notice_time, register_gate
from actions.policy.budgets import find_blocks
from actions.policy.schedule import get_blackout_end, get_opening, is_action_open, is_blackout
from fallow.approvals import Approver, count_people
from fallow.protections import (
    Protection,
    parse_timestamp,
    read_annotations,
    read_protections,
    select_protections,
)

MOST_DOUBLINGS = 8
"""Maximum doublings of the cool-down: after so many reversals a workload is left alone for 256
cool-downs (64 days)."""


@register_gate("keep")
def _check_owner_keep(case: GateInput) -> Iterator[Refusal]:
    facts, now = case.facts, case.now
    until = facts.history.kept_until
    if until is not None and until > now:
        yield Refusal(f"kept until {until:%F %R} UTC", until)
    for prefix, marks in (
        ("", select_protections(facts.labels, facts.annotations)),
        (
            "its namespace's ",
            select_protections(facts.namespace_labels, facts.namespace_annotations),
        ),
    ):
        for key, row in read_annotations().items() if marks else ():
            value = marks.get(key)
            if value is not None and row.protects(value, now):
                yield _refuse_protection(row, f"{prefix}{key}={value}", value)
    priority_class = facts.priority_class or ""
    for row in read_protections() if priority_class else ():
        if row.where == "priority" and priority_class.startswith(row.key):
            yield Refusal(f"{row.why}: priority class {priority_class}")


def _refuse_protection(row: Protection, mark: str, value: str) -> Refusal:
    until = parse_timestamp(value.strip()) if row.value == "until" else None
    if row.value == "until" and until is None:
        return Refusal(f"{row.why}: {mark} (no time given, so for ever)")
    return Refusal(f"{row.why}: {mark}", None if until is None else until.astimezone(UTC))


@register_gate("open")
def _check_open(case: GateInput) -> Iterator[Refusal]:
    if case.facts.history.open_action is not None:
        yield Refusal(f"action {case.facts.history.open_action} on it has no outcome yet")


@register_gate("reverted")
def _check_reverted(case: GateInput) -> Iterator[Refusal]:
    until = case.facts.history.contested_until
    if until is not None and until > case.now:
        yield Refusal(f"somebody reverted us: left alone until {until:%F %R} UTC", until)


@register_gate("cool-down")
def _check_cool_down(case: GateInput) -> Iterator[Refusal]:
    history, cool_down = case.facts.history, case.policy.cool_down
    last = max(filter(None, (history.last_action_at, *history.restored_at)), default=None)
    if last is None:
        return
    reversals = len(history.restored_at)
    until = last + cool_down * 2 ** min(reversals, MOST_DOUBLINGS)
    if case.now < until:
        often = "once" if reversals == 1 else f"{reversals} times"
        times = f", reversed {often}" if reversals else ""
        yield Refusal(f"acted upon at {last:%F %R} UTC{times}: rests until {until:%F %R}", until)


@register_gate("trusted")
def _check_trusted(case: GateInput) -> Iterator[Refusal]:
    name, rate = case.policy.name, case.policy.reversals.rate
    if name not in case.usage.trusted:
        none = f"no back-test of this text of the policy proved reversals within {rate:.1%}"
        yield Refusal(case.usage.unproved.get(name, none))


@register_gate("demoted")
def _check_demoted(case: GateInput) -> Iterator[Refusal]:
    if case.policy.name in case.usage.demoted:
        yield Refusal(
            f"owners took back more than {case.policy.reversals.rate:.1%} of what it stopped"
        )


@register_gate("window")
def _check_window(case: GateInput) -> Iterator[Refusal]:
    window = case.policy.act_window
    if window is not None and not is_action_open(window, case.now):
        until = get_opening(window, case.now)
        when = "not within a year" if until is None else f"{until:%F %R} UTC"
        yield Refusal(
            f"it acts only from '{window.schedule}' ({window.timezone}) on: {when}", until
        )


@register_gate("blackout")
def _check_blackout(case: GateInput) -> Iterator[Refusal]:
    for blackout in case.policy.blackouts:
        if is_blackout(blackout, case.now):
            yield Refusal(blackout.name, get_blackout_end(blackout, case.now))


@register_gate("budget")
def _check_budget(case: GateInput) -> Iterator[Refusal]:
    for hold in find_blocks(case.policy, case.facts, case.usage, case.now):
        yield Refusal(hold.reason.text, hold.until)


@register_gate("concurrent")
def _check_concurrent(case: GateInput) -> Iterator[Refusal]:
    under_way, limit = case.usage.concurrent, case.policy.concurrent
    if under_way >= limit:
        yield Refusal(f"{under_way} actions are under way, concurrent is {limit}")


@register_gate("approval")
def _check_approval(case: GateInput) -> Iterator[Refusal]:
    approvals = case.policy.approvals
    acted = case.usage.acted.get(case.policy.name, 0)
    if approvals.when == "none" or (approvals.when == "first" and acted >= approvals.first):
        return
    history = case.facts.history
    approvers = [
        Approver(name, subject)
        for name, subject in zip_longest(
            history.approved_by, history.approved_subjects[: len(history.approved_by)], fillvalue=""
        )
    ]
    needed = 2 if approvals.four_eyes else 1
    if count_people(approvers) < needed:
        people = {a.name.strip().casefold() for a in approvers} - {""}
        required = "two different people have" if approvals.four_eyes else "somebody has"
        approved = f", {', '.join(sorted(people))} did" if people else ""
        if len(people) >= needed:
            approved += ": whether they are different people is not known from their sign-ins"
        scope = (
            f" its first {approvals.first} actions" if approvals.when == "first" else " each action"
        )
        yield Refusal(f"{required} to approve{scope}{approved}")


@register_gate("first-sight")
def _check_first_sight(case: GateInput) -> Iterator[Refusal]:
    first_seen = case.facts.history.first_seen
    if first_seen is None or first_seen >= case.now:
        yield Refusal("seen for the first time: first sight only warns")


@register_gate("notice")
def _check_notice(case: GateInput) -> Iterator[Refusal]:
    if case.policy.stage("notify") is not None and get_notice_time(case.facts) is None:
        yield Refusal("no notice of it is proved to be delivered")


@register_gate("grace")
def _check_grace(case: GateInput) -> Iterator[Refusal]:
    stage, notified_at = case.policy.stage("grace"), get_notice_time(case.facts)
    if stage is None or notified_at is None:
        return
    until = notified_at + stage.wait
    if case.now < until:
        yield Refusal(
            f"its owner was notified at {notified_at:%F %R}, grace is {format_span(stage.wait)}",
            until,
        )
