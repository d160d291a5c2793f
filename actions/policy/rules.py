"""Check the rules between the keys of a policy before it is accepted."""

from collections.abc import Iterator
from datetime import timedelta
from fnmatch import fnmatchcase
from typing import Any

import msgspec

from actions.policy.capabilities import Capabilities
from actions.policy.keys import STAGES
from actions.policy.model import Policy
from actions.policy.shapes import suggest_word
from actions.policy.tree import Location, Node, get_line
from actions.recommend import stop_verbs
from fallow.plugins import installed
from fallow.window import format_duration

MIN_TURNS = 3
"""A wait of fewer evaluations could end before the first evaluation (dstack issue 2384)."""


class PolicyText(msgspec.Struct, frozen=True):
    """The text of a policy in its file."""

    node: Node
    values: dict[str, Any]
    location: Location

    def report(self, key: str, text: str, node: Node | None = None) -> None:
        """Record an error at a key, with its line where the key is in the file."""
        target_node = node or self._node(key)
        Location(self.location.file, self.location.problems, key).report(
            get_line(target_node), text
        )

    def _node(self, key: str) -> Node:
        node = self.node
        for name in key.split("."):
            children = node.value if isinstance(node.value, list) else []
            pairs = (pair for pair in children if isinstance(pair, tuple))
            node = next((value for k, value in pairs if k.value == name), node)
        return node


def check(
    policy: Policy, text: PolicyText, capabilities: Capabilities, interval: timedelta
) -> None:
    """Record every combination of keys that is not allowed."""
    _stage_order(policy, text)
    _acts(policy, text, capabilities)
    _waits(policy, text, interval)
    _budgets(policy, text)
    _blackouts(policy, text)
    _analyzers(policy, text)
    if policy.mode == "enforce":
        for key, problem in _enforcing(policy, text.values):
            text.report(key, problem)


def _stage_order(policy: Policy, text: PolicyText) -> None:
    steps = [stage.step for stage in policy.stages]
    if not steps:
        text.report("stages", f"is empty; legal: {', '.join(STAGES)}, in this order")
    for (node, name, _), before in zip(
        text.values["stages"][1:], text.values["stages"][:-1], strict=True
    ):
        if STAGES.index(name) <= STAGES.index(before[1]):
            order = " < ".join(STAGES)
            text.report(
                "stages", f"{name} cannot stand after {before[1]}: {order}, each once", node
            )
    if "grace" in steps and "notify" not in steps:
        text.report("stages", "grace needs notify before it: it counts from a proved notice")
    if "snapshot" in steps and "act" not in steps:
        text.report("stages", "a snapshot needs an act after it")


def _acts(policy: Policy, text: PolicyText, capabilities: Capabilities) -> None:
    for node, name, value in text.values["stages"]:
        for word in value["do"] if name == "act" else ():
            if word not in capabilities.verbs_by_word:
                suggestion = suggest_word(word, capabilities.verbs_by_word)
                legal = ", ".join(capabilities.verbs_by_word) or "nothing: no executor is installed"
                text.report(
                    "stages.act", f"no executor can {word!r}{suggestion}; legal: {legal}", node
                )
    verbs = set(policy.stage("act").verbs) if policy.stage("act") else set()  # type: ignore[union-attr]
    steps = {stage.step for stage in policy.stages}
    if verbs & stop_verbs() and not {"notify", "grace"} <= steps:
        stop_words = ", ".join(sorted(verbs & stop_verbs()))
        text.report(
            "stages", f"what stops a workload ({stop_words}) needs notify and grace before it"
        )


def _waits(policy: Policy, text: PolicyText, interval: timedelta) -> None:
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
                f"{name} of {_span(value)} is shorter than {MIN_TURNS} looks of {_span(interval)}; "
                f"legal: {_span(minimum)} or more",
            )


def _budgets(policy: Policy, text: PolicyText) -> None:
    for (node, values), budget in zip(text.values.get("budgets", ()), policy.budgets, strict=True):
        amounts = (budget.workloads, budget.gpus, budget.owners, budget.usd_per_hour)
        if all(amount is None for amount in amounts):
            limits = "workloads, gpus, owners, usd_per_hour"
            text.report("budgets", f"a budget limits something; legal: {limits}", node)
        if budget.each and any(amount is not None and amount.share for amount in amounts):
            problem = (
                f"a percentage is of the whole fleet and cannot be counted for each {budget.each}"
            )
            text.report("budgets", problem, node)
        _window("budgets", values, text, node)


def _blackouts(policy: Policy, text: PolicyText) -> None:
    for (node, values), blackout in zip(
        text.values.get("blackouts", ()), policy.blackouts, strict=True
    ):
        days = "from" in values or "to" in values
        if days == ("schedule" in values):
            text.report("blackouts", "has either from and to, or schedule and duration", node)
        elif "to" in values and "from" not in values:
            text.report("blackouts", "to needs from: when does it begin?", node)
        elif blackout.start and blackout.end and blackout.end <= blackout.start:
            text.report("blackouts", "ends before it begins", node)
        if not days:
            _window("blackouts", values, text, node)


def _window(key: str, values: dict[str, Any], text: PolicyText, node: Node) -> None:
    if ("schedule" in values) != ("duration" in values):
        present = "schedule" if "schedule" in values else "duration"
        missing = "duration" if present == "schedule" else "schedule"
        text.report(key, f"{present} needs {missing}", node)
    if "timezone" in values and "schedule" not in values:
        text.report(key, "timezone needs schedule: it says whose clock that means", node)


def _analyzers(policy: Policy, text: PolicyText) -> None:
    legal = list(installed("analyzers"))
    for glob in policy.match.analyzer:
        if not any(fnmatchcase(name, glob) for name in legal):
            suggestion = suggest_word(glob, legal)
            problem = f"no analyzer called {glob!r}{suggestion}; legal: {', '.join(legal)}"
            text.report("match.analyzer", problem)


def _enforcing(policy: Policy, values: dict[str, Any]) -> Iterator[tuple[str, str]]:
    if policy.stage("act") is None:
        yield "mode", "enforce needs an act in the stages; legal: notify, or add act"
    if "namespaces" not in values.get("allow", {}) and not policy.allow.cluster_objects:
        requirement = "the namespaces it may act in, [] = none yet (or cluster_objects: true)"
        yield "allow", f"enforce needs allow.namespaces: {requirement}"
    if not any(budget.window is None and not budget.each for budget in policy.budgets):
        yield "budgets", "enforce needs a budget that always holds: without schedule and each"


def _span(length: timedelta) -> str:
    return format_duration(length.total_seconds())
