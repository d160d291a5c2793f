"""What is asked of what was done and said before: by us, by the owner, by those who approve."""

from collections.abc import Iterator
from datetime import UTC

from actions.gates.case import Case, No, gate, notice_at, span
from actions.policy.budgets import held
from actions.policy.schedule import allows, dark, light, opens
from fallow.protections import Protection, annotations, moment, named, protections

MOST_DOUBLINGS = 8
"""Of the cool-down: a workload that was taken back so often rests 256 cool-downs, 64 days."""


@gate("kept")
def _kept(case: Case) -> Iterator[No]:
    facts, now = case.facts, case.now
    until = facts.history.kept_until
    if until is not None and until > now:
        yield No(f"kept until {until:%F %R} UTC", until)
    for whose, words in (
        ("", named(facts.labels, facts.annotations)),
        ("its namespace's ", named(facts.namespace_labels, facts.namespace_annotations)),
    ):
        for key, row in annotations().items():
            said = words.get(key)
            if said is not None and row.protects(said, now):
                yield _protection(row, f"{whose}{key}={said}", said)
    for row in protections():
        used = facts.priority_class or ""
        if row.where == "priority" and used.startswith(row.key):
            yield No(f"{row.why}: priority class {used}")


def _protection(row: Protection, where: str, said: str) -> No:
    until = moment(said.strip()) if row.value == "until" else None
    if row.value == "until" and until is None:
        return No(f"{row.why}: {where} (no moment, so for ever)")
    return No(f"{row.why}: {where}", None if until is None else until.astimezone(UTC))


@gate("open")
def _open(case: Case) -> Iterator[No]:
    if case.facts.history.open_action is not None:
        yield No(f"action {case.facts.history.open_action} on it has no outcome yet")


@gate("contested")
def _contested(case: Case) -> Iterator[No]:
    until = case.facts.history.contested_until
    if until is not None and until > case.now:
        yield No(f"somebody reverted us: left alone until {until:%F %R} UTC", until)


@gate("cool-down")
def _cool_down(case: Case) -> Iterator[No]:
    history, rest = case.facts.history, case.policy.cool_down
    last = max(filter(None, (history.last_action_at, *history.restored_at)), default=None)
    if last is None:
        return
    back = len(history.restored_at)
    until = last + rest * 2 ** min(back, MOST_DOUBLINGS)
    if case.now < until:
        times = f", taken back {back} times" if back else ""
        yield No(f"acted upon at {last:%F %R} UTC{times}: rests until {until:%F %R}", until)


@gate("trusted")
def _trusted(case: Case) -> Iterator[No]:
    name, rate = case.policy.name, case.policy.regret.rate
    if name not in case.spent.trusted:
        none = f"no back-test of this text of the policy proved reversals within {rate:.1%}"
        yield No(case.spent.unproved.get(name, none))


@gate("demoted")
def _demoted(case: Case) -> Iterator[No]:
    if case.policy.name in case.spent.demoted:
        yield No(f"owners took back more than {case.policy.regret.rate:.1%} of what it stopped")


@gate("window")
def _window(case: Case) -> Iterator[No]:
    window = case.policy.act_window
    if window is not None and not allows(window, case.now):
        until = opens(window, case.now)
        when = "never" if until is None else f"{until:%F %R} UTC"
        yield No(f"it acts only from '{window.schedule}' ({window.timezone}) on: {when}", until)


@gate("blackout")
def _blackout(case: Case) -> Iterator[No]:
    for blackout in case.policy.blackouts:
        if dark(blackout, case.now):
            yield No(blackout.name, light(blackout, case.now))


@gate("budget")
def _budget(case: Case) -> Iterator[No]:
    for hold in held(case.policy, case.facts, case.spent, case.now):
        yield No(hold.reason.text, hold.until)


@gate("concurrent")
def _concurrent(case: Case) -> Iterator[No]:
    under_way, most = case.spent.concurrent, case.policy.concurrent
    if under_way >= most:
        yield No(f"{under_way} actions are under way, concurrent is {most}")


@gate("approval")
def _approval(case: Case) -> Iterator[No]:
    asked = case.policy.approvals
    acted = case.spent.acted.get(case.policy.name, 0)
    if asked.when == "none" or (asked.when == "first" and acted >= asked.first):
        return
    people = {name.strip().casefold() for name in case.facts.history.approved_by} - {""}
    needed = 2 if asked.four_eyes else 1
    if len(people) < needed:
        who = "two different people have" if asked.four_eyes else "somebody has"
        said = f", {', '.join(sorted(people))} did" if people else ""
        which = f" its first {asked.first} actions" if asked.when == "first" else " each action"
        yield No(f"{who} to approve{which}{said}")


@gate("first-sight")
def _first_sight(case: Case) -> Iterator[No]:
    seen = case.facts.history.first_seen
    if seen is None or seen >= case.now:
        yield No("seen for the first time: first sight only warns")


@gate("notice")
def _notice(case: Case) -> Iterator[No]:
    if case.policy.rung("notify") is not None and notice_at(case.facts) is None:
        yield No("no notice of it is proved to be delivered")


@gate("grace")
def _grace(case: Case) -> Iterator[No]:
    rung, told = case.policy.rung("grace"), notice_at(case.facts)
    if rung is None or told is None:
        return
    until = told + rung.wait
    if case.now < until:
        yield No(f"its owner was told at {told:%F %R}, grace is {span(rung.wait)}", until)
