"""Return every gate's answer about one case under one policy, and what would have to change."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from functools import cache
from shlex import quote

import msgspec

from actions.gates import GateInput, find_closed_gates, list_gates
from actions.journal.action_state import SubjectKey
from actions.policy.budgets import BudgetUsage
from actions.policy.model import Policy
from fallow.action_models import Facts, compute_decision_id
from fallow.errors import UsageError
from fallow.models import Subject
from fallow.resources import read_table

MOST_NAMED = 8


class GateAnswer(msgspec.Struct, frozen=True):
    """The answer of one gate."""

    gate: str
    question: str
    open: bool
    refusal: str
    until: datetime | None = None
    """When it opens if only time has to pass."""
    way: str = ""
    """What else would have to change."""


def answer_gates(
    policy: Policy,
    facts: Facts,
    usage: BudgetUsage,
    now: datetime,
    requested: Collection[str] = (),
) -> list[GateAnswer]:
    """Return the answers of all gates in their order, open or closed.

    `requested` are the ids of the journal's requests: no other one can be approved.
    """
    request = compute_decision_id(policy.name, facts.finding.id, "act")
    closed: dict[str, list[tuple[str, datetime | None]]] = {}
    for closed_gate in find_closed_gates(GateInput(policy, facts, usage, now)):
        closed.setdefault(closed_gate.gate.gate, []).append(
            (closed_gate.reason.text, closed_gate.until)
        )
    answers = []
    for gate in list_gates():
        refusals = closed.get(gate.gate)
        if refusals is None:
            answers.append(GateAnswer(gate.gate, gate.question, open=True, refusal=""))
            continue
        until = [until_time for _, until_time in refusals if until_time is not None]
        refusal = "; ".join(text for text, _ in refusals)
        answers.append(
            GateAnswer(
                gate=gate.gate,
                question=gate.question,
                open=False,
                refusal=refusal,
                until=max(until) if len(until) == len(refusals) else None,
                way=describe_way(gate.gate, refusal, request, requested),
            )
        )
    return answers


def find_subject(
    text: str,
    subjects: Iterable[Subject],
    *,
    verb: str = "was seen lately",
    hint: str = "write Kind/namespace/name or a part of it",
) -> Subject:
    """Return the workload that a text names: Kind/namespace/name, or a part that only one has.

    namespace/Kind/name, as pages and `fallow spend` write it, names it too. `verb` and `hint`: what
    no workload of this name does, and what to do then.

    Raises:
        UsageError: the text matches no workload, or several.
    """
    by_name: dict[str, dict[str, Subject]] = {}
    as_on_pages: dict[str, str] = {}
    for s in subjects:
        name = format_subject(s)
        by_name.setdefault(name, {})[s.cluster] = s
        as_on_pages["/".join(filter(None, (s.namespace, s.workload_kind, s.workload)))] = name
    text = text.replace("//", "/")
    exact = as_on_pages.get(text, text)
    if exact in by_name:
        return _choose_cluster(exact, by_name[exact])
    lower_text = text.lower()
    for is_match in (_is_ending, _is_within):
        matches = sorted(name for name in by_name if is_match(name.lower(), lower_text))
        if len(matches) == 1:
            return _choose_cluster(matches[0], by_name[matches[0]])
        if matches:
            raise UsageError(f"{text!r} may be several workloads", hint=format_names(matches))
    raise UsageError(f"no workload {text!r} {verb}", hint=hint)


def format_subject(subject: Subject | SubjectKey) -> str:
    """Format a workload as Kind/namespace/name, a queue or a node as Kind/name."""
    if isinstance(subject, Subject):
        subject = (subject.cluster, subject.workload_kind, subject.namespace, subject.workload)
    return "/".join(filter(None, subject[1:]))


def _choose_cluster(name: str, by_cluster: Mapping[str, Subject]) -> Subject:
    clusters = sorted(by_cluster)
    if len(clusters) > 1:
        named = f"{', '.join(clusters[:-1])} and {clusters[-1]}"
        raise UsageError(
            f"{name} is in {named}", hint=f"name one of them: --cluster {quote(clusters[0])}"
        )
    return by_cluster[clusters[0]]


def _is_ending(name: str, text: str) -> bool:
    return name.endswith(f"/{text}")


def _is_within(name: str, text: str) -> bool:
    return text in name


def format_names(names: Sequence[str]) -> str:
    """Format names as a list, and say how many more there are than it has."""
    rest_count = len(names) - MOST_NAMED
    return ", ".join(names[:MOST_NAMED]) + (f" and {rest_count} more" if rest_count > 0 else "")


def describe_way(gate: str, refusal: str, request: str, requested: Collection[str]) -> str:
    """Return what would open a gate that refuses.

    A request that is not in the journal has to be made first; no signal is asked for that the
    refusal does not miss.
    """
    if gate == "evidence":
        remedies = read_evidence_remedies()
        ways = dict.fromkeys(way for reason, way in remedies.items() if reason in refusal)
        return "; ".join(ways) or read_remedies()[gate]
    way = "request" if gate == "approval" and request not in requested else gate
    return read_remedies().get(way, "").replace("approve ID", f"approve {request}")


@cache
def read_evidence_remedies() -> dict[str, str]:
    """Return what would give the evidence that each reason misses (`evidence_remedies.csv`)."""
    return {row["reason"]: row["way"] for row in read_table("actions", "evidence_remedies.csv")}


@cache
def read_remedies() -> dict[str, str]:
    """Return what would open each gate (`remedies.csv`)."""
    return {row["gate"]: row["way"] for row in read_table("actions", "remedies.csv")}
