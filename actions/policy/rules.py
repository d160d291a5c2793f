"""Check the rules between the keys of a policy before it is accepted."""

from collections.abc import Iterator
from datetime import timedelta
from fnmatch import fnmatchcase
from itertools import pairwise
from typing import Any

import msgspec

from actions.policy.capabilities import Capabilities
from actions.policy.keys import STAGES
from actions.policy.model import Policy
from actions.policy.tree import Location, Node, get_descendant
from actions.policy.values import suggest_word
from actions.recommend import ELSEWHERE, RESTART, stop_verbs
from fallow.plugins import find_installed
from fallow.window import format_duration

MIN_TURNS = 3
"""A wait of fewer evaluations could end before the first evaluation (dstack issue 2384)."""


class PolicyText(msgspec.Struct, frozen=True):
    """The text of a policy in its file."""

    node: Node
    keys: Any
    """Of the file, as `keys.PolicyKeys` reads them."""
    location: Location

    def report(self, key: str, text: str, item: int | None = None) -> None:
        """Record an error at a key, with the line of the key, or of an item of its list."""
        names: list[str | int] = [*key.split(".")]
        if item is not None:
            names[1:] = [item]
        Location(self.location.file, self.location.problems, key).report(
            get_descendant(self.node, names), text
        )


def check(
    policy: Policy, text: PolicyText, capabilities: Capabilities, interval: timedelta
) -> None:
    """Record every combination of keys that is not allowed."""
    _stage_order(policy, text)
    _check_acts(policy, text, capabilities)
    _check_waits(policy, text, interval)
    _check_budgets(policy, text)
    _check_blackouts(policy, text)
    _check_analyzers(policy, text)
    if policy.mode == "enforce":
        for key, problem in _check_enforcing(policy, text.keys):
            text.report(key, problem)


def _stage_order(policy: Policy, text: PolicyText) -> None:
    steps = [stage.step for stage in policy.stages]
    if not steps:
        text.report("stages", f"is empty; legal: {', '.join(STAGES)}, in this order")
    for number, (before, step) in enumerate(pairwise(steps), start=1):
        if STAGES.index(step) <= STAGES.index(before):
            order = " < ".join(STAGES)
            text.report("stages", f"{step} cannot stand after {before}: {order}, each once", number)
    if "grace" in steps and "notify" not in steps:
        text.report("stages", "grace needs notify before it: it counts from a proved notice")
    if "snapshot" in steps and "act" not in steps:
        text.report("stages", "a snapshot needs an act after it")


def _check_acts(policy: Policy, text: PolicyText, capabilities: Capabilities) -> None:
    for number, stage in enumerate(policy.stages):
        for word in stage.do:
            if word not in capabilities.verbs_by_word:
                suggestion = suggest_word(word, capabilities.verbs_by_word)
                legal = ", ".join(capabilities.verbs_by_word) or "nothing: no executor is installed"
                problem = f"no executor can {word!r}{suggestion}; legal: {legal}"
                text.report("stages.act", problem, number)
    verbs = set(policy.stage("act").verbs) if policy.stage("act") else set()  # type: ignore[union-attr]
    steps = {stage.step for stage in policy.stages}
    if verbs & stop_verbs() and not {"notify", "grace"} <= steps:
        stop_words = ", ".join(sorted(verbs & stop_verbs()))
        text.report(
            "stages", f"what stops a workload ({stop_words}) needs notify and grace before it"
        )
    if {RESTART, ELSEWHERE} & verbs and policy.checkpoint_age is None:
        text.report("stages", "restart needs checkpoint_age: how much work it may lose, such as 1h")


def _check_waits(policy: Policy, text: PolicyText, interval: timedelta) -> None:
    minimum = MIN_TURNS * interval
    grace = policy.stage("grace")
    for key, value in (
        ("stages", grace.wait if grace else None),
        ("min_age", policy.min_age or None),
        ("cool_down", policy.cool_down),
    ):
        if value is not None and value < minimum:
            name = "grace" if key == "stages" else key
            text.report(
                key,
                f"{name} of {_span(value)} is shorter than {MIN_TURNS} evaluations of "
                f"{_span(interval)}; legal: {_span(minimum)} or more",
            )


def _check_budgets(policy: Policy, text: PolicyText) -> None:
    for number, budget in enumerate(policy.budgets):
        amounts = (budget.workloads, budget.gpus, budget.owners, budget.usd_per_hour)
        if all(amount is None for amount in amounts):
            limits = "workloads, gpus, owners, usd_per_hour"
            text.report("budgets", f"a budget limits something; legal: {limits}", number)
        if budget.each and any(amount is not None and amount.share for amount in amounts):
            problem = (
                f"a percentage is of the whole fleet and cannot be counted for each {budget.each}"
            )
            text.report("budgets", problem, number)
        if budget.scope == "fleet" and budget.each == "cluster":
            problem = "scope fleet counts all clusters together; each: cluster counts them apart"
            text.report("budgets", problem, number)
        _check_window("budgets", text.keys.budgets[number], text, number)


def _check_blackouts(policy: Policy, text: PolicyText) -> None:
    for number, blackout in enumerate(policy.blackouts):
        keys = text.keys.blackouts[number]
        has_days = not keys.model_fields_set.isdisjoint({"start", "end"})
        if has_days == ("schedule" in keys.model_fields_set):
            text.report("blackouts", "has either from and to, or schedule and duration", number)
        elif blackout.end and not blackout.start:
            text.report("blackouts", "to needs from: when does it begin?", number)
        elif blackout.start and blackout.end and blackout.end <= blackout.start:
            text.report("blackouts", "ends before it begins", number)
        if not has_days:
            _check_window("blackouts", keys, text, number)


def _check_window(key: str, keys: Any, text: PolicyText, item: int) -> None:
    names = keys.model_fields_set
    if ("schedule" in names) != ("duration" in names):
        present = "schedule" if "schedule" in names else "duration"
        missing = "duration" if present == "schedule" else "schedule"
        text.report(key, f"{present} needs {missing}", item)
    if "timezone" in names and "schedule" not in names:
        text.report(key, "timezone needs schedule: it is the time zone of the schedule", item)


def _check_analyzers(policy: Policy, text: PolicyText) -> None:
    legal = list(find_installed("analyzers"))
    for glob in policy.match.analyzer:
        if not any(fnmatchcase(name, glob) for name in legal):
            suggestion = suggest_word(glob, legal)
            problem = f"no analyzer called {glob!r}{suggestion}; legal: {', '.join(legal)}"
            text.report("match.analyzer", problem)


def _check_enforcing(policy: Policy, keys: Any) -> Iterator[tuple[str, str]]:
    if policy.stage("act") is None:
        yield "mode", "enforce needs an act in the stages; legal: notify, or add act"
    is_listed = "allow" in keys.model_fields_set and "namespaces" in keys.allow.model_fields_set
    if not is_listed and not policy.allow.cluster_objects:
        requirement = "the namespaces it may act in, [] = none yet (or cluster_objects: true)"
        yield "allow", f"enforce needs allow.namespaces: {requirement}"
    if not any(budget.window is None and not budget.each for budget in policy.budgets):
        yield "budgets", "enforce needs a budget that always holds: without schedule and each"


def _span(length: timedelta) -> str:
    return format_duration(length.total_seconds())
