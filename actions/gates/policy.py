"""Gates of the policy: does it match this case, and does it allow this action here?"""

import re
from collections.abc import Iterator
from functools import cache, lru_cache

from actions.gates.registry import GateInput, Refusal, join_words, register_gate
from actions.policy.matching import explain_mismatch, is_any_match
from actions.recommend import explain_protection, stop_verbs
from fallow.action_models import Facts
from fallow.resources import read_table


@register_gate("match")
def _check_match(case: GateInput) -> Iterator[Refusal]:
    for reason in explain_mismatch(case.policy, case.facts):
        yield Refusal(reason.text)


@register_gate("frozen")
def _check_frozen(case: GateInput) -> Iterator[Refusal]:
    if case.usage.frozen is not None:
        yield Refusal(case.usage.frozen)


@register_gate("mode")
def _check_mode(case: GateInput) -> Iterator[Refusal]:
    if case.policy.mode != "enforce":
        yield Refusal(f"mode is {case.policy.mode}: it only tells")


@register_gate("namespace")
def _check_namespace(case: GateInput) -> Iterator[Refusal]:
    space, allowed = case.facts.finding.subject.namespace, case.policy.allow.namespaces
    if not space:
        if not case.policy.allow.cluster_objects:
            yield Refusal("it belongs to no namespace, and allow.cluster_objects is false")
    elif not is_any_match(allowed, space):
        yield Refusal(f"{space} is not in allow.namespaces ({join_words(allowed)})")


@register_gate("kind")
def _check_kind(case: GateInput) -> Iterator[Refusal]:
    subject, allowed = case.facts.finding.subject, case.policy.allow.kinds
    kind = subject.workload_kind
    protected = explain_protection(
        kind if case.facts.recommendation.verb in stop_verbs() else "", subject.namespace
    )
    if protected is not None:
        yield Refusal(
            f"{kind} in {subject.namespace or 'no namespace'} is never touched: {protected}"
        )
    if allowed and not is_any_match(allowed, kind):
        yield Refusal(f"{kind} is not in allow.kinds ({join_words(allowed)})")
    serves = kind in _read_serving_kinds() or case.facts.finding.kind == "idle_inference"
    if serves and not allowed:
        yield Refusal(f"{kind} serves: it has to be named in allow.kinds")


@register_gate("production")
def _check_production(case: GateInput) -> Iterator[Refusal]:
    if (case.facts.priority_class or "").startswith("system-"):
        yield Refusal(
            f"priority class {case.facts.priority_class}: the cluster cannot do without it"
        )
    if not case.policy.allow.production:
        for sign in _find_production_signs(case.facts):
            yield Refusal(f"is production by its labels: {sign} (allow.production is false)")


@register_gate("verb")
def _check_verb(case: GateInput) -> Iterator[Refusal]:
    advice, stage = case.facts.recommendation, case.policy.stage("act")
    permitted = stage.verbs if stage else ()
    if not is_any_match(permitted, advice.verb):
        yield Refusal(f"{advice.verb!r} is not what the stages allow ({join_words(permitted)})")
    if not advice.reversible:
        yield Refusal(f"{advice.verb!r} cannot be undone")


def _find_production_signs(facts: Facts) -> Iterator[str]:
    subject = facts.finding.subject
    namespace_words = _split_words(subject.namespace)
    priority_words = _split_words(facts.priority_class or "")
    label_maps = [
        (prefix, labels)
        for prefix, labels in (("", facts.labels), ("its namespace's ", facts.namespace_labels))
        if labels
    ]
    for source, key, value in _read_signs():
        if source == "namespace" and value in namespace_words:
            yield f"namespace {subject.namespace}"
        if source == "priority" and value in priority_words:
            yield f"priority class {facts.priority_class}"
        if source == "label":
            for prefix, labels in label_maps:
                if labels.get(key, "").lower() == value:
                    yield f"{prefix}label {key}={labels[key]}"


@lru_cache(maxsize=4096)
def _split_words(name: str) -> frozenset[str]:
    return frozenset(re.split(r"[^a-z0-9]+", name.lower()))


@cache
def _read_signs() -> tuple[tuple[str, str, str], ...]:
    rows = _read_table("production.csv")
    return tuple((row["where"], row["key"], row["value"]) for row in rows)


@cache
def _read_serving_kinds() -> frozenset[str]:
    return frozenset(row["workload_kind"] for row in _read_table("serving.csv"))


def _read_table(name: str) -> list[dict[str, str]]:
    return read_table("actions.policy", name)
