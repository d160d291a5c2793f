"""What must hold between the keys of a policy, before it may be read at all."""

from collections.abc import Iterator
from datetime import timedelta
from fnmatch import fnmatchcase
from typing import Any

import msgspec

from actions.policy.able import Able
from actions.policy.keys import RUNGS
from actions.policy.model import Policy
from actions.policy.shapes import did_you_mean
from actions.policy.tree import Node, Where, line_of
from actions.recommend import stops
from fallow.plugins import installed
from fallow.window import format_duration

LEAST_LOOKS = 3
"""A wait of fewer looks is over before it was looked at (dstack issue 2384)."""


class Text(msgspec.Struct, frozen=True):
    """A policy as it stands in its file."""

    node: Node
    said: dict[str, Any]
    where: Where

    def wrong(self, key: str, text: str, node: Node | None = None) -> None:
        """Take down what is wrong at a key, at its line where it stands in the file."""
        found = node or self._node(key)
        Where(self.where.file, self.where.problems, key).wrong(line_of(found), text)

    def _node(self, key: str) -> Node:
        found = self.node
        for name in key.split("."):
            inside = found.value if isinstance(found.value, list) else []
            pairs = (pair for pair in inside if isinstance(pair, tuple))
            found = next((value for k, value in pairs if k.value == name), found)
        return found


def check(policy: Policy, text: Text, can: Able, look: timedelta) -> None:
    """Take down everything that does not go together."""
    _ladder(policy, text)
    _acts(policy, text, can)
    _waits(policy, text, look)
    _budgets(policy, text)
    _blackouts(policy, text)
    _analyzers(policy, text)
    if policy.mode == "enforce":
        for key, said in _enforcing(policy, text.said):
            text.wrong(key, said)


def _ladder(policy: Policy, text: Text) -> None:
    rungs = [rung.step for rung in policy.ladder]
    if not rungs:
        text.wrong("ladder", f"is empty; legal: {', '.join(RUNGS)}, in this order")
    for (node, name, _), before in zip(
        text.said["ladder"][1:], text.said["ladder"][:-1], strict=True
    ):
        if RUNGS.index(name) <= RUNGS.index(before[1]):
            order = " < ".join(RUNGS)
            text.wrong("ladder", f"{name} cannot stand after {before[1]}: {order}, each once", node)
    if "grace" in rungs and "notify" not in rungs:
        text.wrong("ladder", "grace needs notify before it: it counts from a proved notice")
    if "snapshot" in rungs and "act" not in rungs:
        text.wrong("ladder", "a snapshot needs an act after it")


def _acts(policy: Policy, text: Text, can: Able) -> None:
    for node, name, told in text.said["ladder"]:
        for word in told["do"] if name == "act" else ():
            if word not in can.words:
                near = did_you_mean(word, can.words)
                legal = ", ".join(can.words) or "nothing: no executor is installed"
                text.wrong("ladder.act", f"no executor can {word!r}{near}; legal: {legal}", node)
    verbs = set(policy.rung("act").verbs) if policy.rung("act") else set()  # type: ignore[union-attr]
    rungs = {rung.step for rung in policy.ladder}
    if verbs & stops() and not {"notify", "grace"} <= rungs:
        stopped = ", ".join(sorted(verbs & stops()))
        text.wrong("ladder", f"what stops a workload ({stopped}) needs notify and grace before it")


def _waits(policy: Policy, text: Text, look: timedelta) -> None:
    least = LEAST_LOOKS * look
    grace = policy.rung("grace")
    for key, value in (
        ("ladder", grace.wait if grace else None),
        ("min_age", policy.min_age or None),
        ("cool_down", policy.cool_down),
    ):
        if value is not None and value < least:
            what = "grace" if key == "ladder" else key
            text.wrong(
                key,
                f"{what} of {_span(value)} is shorter than {LEAST_LOOKS} looks of {_span(look)}; "
                f"legal: {_span(least)} or more",
            )


def _budgets(policy: Policy, text: Text) -> None:
    for (node, said), budget in zip(text.said.get("budgets", ()), policy.budgets, strict=True):
        amounts = (budget.workloads, budget.gpus, budget.owners, budget.usd_per_hour)
        if all(amount is None for amount in amounts):
            limits = "workloads, gpus, owners, usd_per_hour"
            text.wrong("budgets", f"a budget limits something; legal: {limits}", node)
        if budget.each and any(amount is not None and amount.share for amount in amounts):
            told = (
                f"a percentage is of the whole fleet and cannot be counted for each {budget.each}"
            )
            text.wrong("budgets", told, node)
        _window("budgets", said, text, node)


def _blackouts(policy: Policy, text: Text) -> None:
    for (node, said), blackout in zip(
        text.said.get("blackouts", ()), policy.blackouts, strict=True
    ):
        days = "from" in said or "to" in said
        if days == ("schedule" in said):
            text.wrong("blackouts", "has either from and to, or schedule and duration", node)
        elif "to" in said and "from" not in said:
            text.wrong("blackouts", "to needs from: when does it begin?", node)
        elif blackout.start and blackout.end and blackout.end <= blackout.start:
            text.wrong("blackouts", "ends before it begins", node)
        if not days:
            _window("blackouts", said, text, node)


def _window(key: str, said: dict[str, Any], text: Text, node: Node) -> None:
    if ("schedule" in said) != ("duration" in said):
        there = "schedule" if "schedule" in said else "duration"
        missing = "duration" if there == "schedule" else "schedule"
        text.wrong(key, f"{there} needs {missing}", node)
    if "timezone" in said and "schedule" not in said:
        text.wrong(key, "timezone needs schedule: it says whose clock that means", node)


def _analyzers(policy: Policy, text: Text) -> None:
    legal = list(installed("analyzers"))
    for glob in policy.match.analyzer:
        if not any(fnmatchcase(name, glob) for name in legal):
            near = did_you_mean(glob, legal)
            said = f"no analyzer called {glob!r}{near}; legal: {', '.join(legal)}"
            text.wrong("match.analyzer", said)


def _enforcing(policy: Policy, said: dict[str, Any]) -> Iterator[tuple[str, str]]:
    if policy.rung("act") is None:
        yield "mode", "enforce needs an act in the ladder; legal: notify, or add act"
    if "namespaces" not in said.get("allow", {}) and not policy.allow.cluster_objects:
        need = "the namespaces it may act in, [] = none yet (or cluster_objects: true)"
        yield "allow", f"enforce needs allow.namespaces: {need}"
    if not any(budget.window is None and not budget.each for budget in policy.budgets):
        yield "budgets", "enforce needs a budget that always holds: without schedule and each"


def _span(length: timedelta) -> str:
    return format_duration(length.total_seconds())
