"""Every gate's answer about one case under one policy, and what would have to change."""

import csv
from collections.abc import Iterable, Sequence
from datetime import datetime
from functools import cache
from importlib.resources import files

import msgspec

from actions.gates import Case, closed, gates
from actions.policy.budgets import Spent
from actions.policy.model import Policy
from fallow.acting import Facts
from fallow.errors import UsageError
from fallow.nouns import Subject

MOST_NAMED = 8


class Answer(msgspec.Struct, frozen=True):
    """What one gate says."""

    gate: str
    asks: str
    open: bool
    said: str
    until: datetime | None = None
    """When time alone opens it."""
    way: str = ""
    """What else would have to change."""


def answers(policy: Policy, facts: Facts, spent: Spent, now: datetime) -> list[Answer]:
    """Return every gate's answer in their order, open or shut."""
    shut: dict[str, list[tuple[str, datetime | None]]] = {}
    for no in closed(Case(policy, facts, spent, now)):
        shut.setdefault(no.gate.gate, []).append((no.reason.text, no.until))
    made = []
    for gate in gates():
        found = shut.get(gate.gate)
        if found is None:
            made.append(Answer(gate.gate, gate.asks, open=True, said="yes"))
            continue
        until = [moment for _, moment in found if moment is not None]
        made.append(
            Answer(
                gate=gate.gate,
                asks=gate.asks,
                open=False,
                said="; ".join(text for text, _ in found),
                until=max(until) if len(until) == len(found) else None,
                way=ways().get(gate.gate, ""),
            )
        )
    return made


def chosen(text: str, subjects: Iterable[Subject]) -> Subject:
    """Return the workload that a text names: Kind/namespace/name, or a part only one has.

    Raises:
        UsageError: none is meant, or several are.
    """
    named = {spelled(s): s for s in subjects}
    if text in named:
        return named[text]
    wanted = text.lower()
    for same in (_ends, _within):
        found = sorted(name for name in named if same(name.lower(), wanted))
        if len(found) == 1:
            return named[found[0]]
        if found:
            raise UsageError(f"{text!r} may be several workloads", hint=_listed(found))
    raise UsageError(
        f"no workload {text!r} was seen lately", hint="write Kind/namespace/name or a part of it"
    )


def spelled(subject: Subject) -> str:
    """Write a workload as people do: Kind/namespace/name."""
    return f"{subject.workload_kind}/{subject.namespace}/{subject.workload}"


def _ends(name: str, wanted: str) -> bool:
    return name.endswith(f"/{wanted}")


def _within(name: str, wanted: str) -> bool:
    return wanted in name


def _listed(names: Sequence[str]) -> str:
    more = len(names) - MOST_NAMED
    return ", ".join(names[:MOST_NAMED]) + (f" and {more} more" if more > 0 else "")


@cache
def ways() -> dict[str, str]:
    """Return what would open each gate (`ways.csv`)."""
    text = files("actions").joinpath("ways.csv").read_text(encoding="utf-8")
    return {row["gate"]: row["way"] for row in csv.DictReader(text.splitlines())}
