"""Gates of the policy: does it match this case, and does it allow this action here?"""

import re
from collections.abc import Iterator
from functools import cache

from actions.gates.registry import GateInput, Refusal, gate, join_words
from actions.policy.matching import explain_mismatch, matches_any
from actions.recommend import explain_protection, stop_verbs
from fallow.action_models import Facts
from fallow.resources import read_table


@gate("match")
def _match(case: GateInput) -> Iterator[Refusal]:
    for reason in explain_mismatch(case.policy, case.facts):
        yield Refusal(reason.text)


@gate("frozen")
def _frozen(case: GateInput) -> Iterator[Refusal]:
    if case.usage.frozen is not None:
        yield Refusal(case.usage.frozen)


@gate("mode")
def _mode(case: GateInput) -> Iterator[Refusal]:
    if case.policy.mode != "enforce":
        yield Refusal(f"mode is {case.policy.mode}: it only tells")


@gate("namespace")
def _namespace(case: GateInput) -> Iterator[Refusal]:
    space, allowed = case.facts.finding.subject.namespace, case.policy.allow.namespaces
    if not space:
        if not case.policy.allow.cluster_objects:
            yield Refusal("it belongs to no namespace, and allow.cluster_objects is false")
    elif not matches_any(allowed, space):
        yield Refusal(f"{space} is not in allow.namespaces ({join_words(allowed)})")


@gate("kind")
def _kind(case: GateInput) -> Iterator[Refusal]:
    subject, allowed = case.facts.finding.subject, case.policy.allow.kinds
    kind = subject.workload_kind
    protected = explain_protection(
        kind if case.facts.recommendation.verb in stop_verbs() else "", subject.namespace
    )
    if protected is not None:
        yield Refusal(
            f"{kind} in {subject.namespace or 'no namespace'} is never touched: {protected}"
        )
    if allowed and not matches_any(allowed, kind):
        yield Refusal(f"{kind} is not in allow.kinds ({join_words(allowed)})")
    serves = kind in _serving() or case.facts.finding.kind == "idle_inference"
    if serves and not allowed:
        yield Refusal(f"{kind} serves: it has to be named in allow.kinds")


@gate("production")
def _production(case: GateInput) -> Iterator[Refusal]:
    if (case.facts.priority_class or "").startswith("system-"):
        yield Refusal(
            f"priority class {case.facts.priority_class}: the cluster cannot do without it"
        )
    if not case.policy.allow.production:
        for sign in _production_signs(case.facts):
            yield Refusal(f"is production by its labels: {sign} (allow.production is false)")


@gate("verb")
def _verb(case: GateInput) -> Iterator[Refusal]:
    advice, stage = case.facts.recommendation, case.policy.stage("act")
    permitted = stage.verbs if stage else ()
    if not matches_any(permitted, advice.verb):
        yield Refusal(f"{advice.verb!r} is not what the stages allow ({join_words(permitted)})")
    if not advice.reversible:
        yield Refusal(f"{advice.verb!r} cannot be undone")


def _production_signs(facts: Facts) -> Iterator[str]:
    subject = facts.finding.subject
    namespace_words = set(re.split(r"[^a-z0-9]+", subject.namespace.lower()))
    priority_words = set(re.split(r"[^a-z0-9]+", (facts.priority_class or "").lower()))
    for source, key, value in _signs():
        if source == "namespace" and value in namespace_words:
            yield f"namespace {subject.namespace}"
        if source == "priority" and value in priority_words:
            yield f"priority class {facts.priority_class}"
        if source == "label":
            for prefix, labels in (
                ("", facts.labels),
                ("its namespace's ", facts.namespace_labels),
            ):
                if labels.get(key, "").lower() == value:
                    yield f"{prefix}label {key}={labels[key]}"


@cache
def _signs() -> tuple[tuple[str, str, str], ...]:
    rows = _table("production.csv")
    return tuple((row["where"], row["key"], row["value"]) for row in rows)


@cache
def _serving() -> frozenset[str]:
    return frozenset(row["workload_kind"] for row in _table("serving.csv"))


def _table(name: str) -> list[dict[str, str]]:
    return read_table("actions.policy", name)
