"""What is asked of the policy: is this its case, and may it act here, on this, in this way?"""

import csv
import re
from collections.abc import Iterator
from functools import cache
from importlib.resources import files

from actions.gates.case import Case, No, gate, listed
from actions.policy.matching import any_of, matches
from actions.recommend import never, stops
from fallow.acting import Facts


@gate("match")
def _match(case: Case) -> Iterator[No]:
    for reason in matches(case.policy, case.facts):
        yield No(reason.text)


@gate("frozen")
def _frozen(case: Case) -> Iterator[No]:
    if case.spent.frozen is not None:
        yield No(case.spent.frozen)


@gate("mode")
def _mode(case: Case) -> Iterator[No]:
    if case.policy.mode != "enforce":
        yield No(f"mode is {case.policy.mode}: it only tells")


@gate("namespace")
def _namespace(case: Case) -> Iterator[No]:
    space, allowed = case.facts.finding.subject.namespace, case.policy.allow.namespaces
    if not space:
        if not case.policy.allow.cluster_objects:
            yield No("it belongs to no namespace, and allow.cluster_objects is false")
    elif not any_of(allowed, space):
        yield No(f"{space} is not in allow.namespaces ({listed(allowed)})")


@gate("kind")
def _kind(case: Case) -> Iterator[No]:
    subject, allowed = case.facts.finding.subject, case.policy.allow.kinds
    kind = subject.workload_kind
    protected = never(kind if case.facts.recommendation.verb in stops() else "", subject.namespace)
    if protected is not None:
        yield No(f"{kind} in {subject.namespace or 'no namespace'} is never touched: {protected}")
    if allowed and not any_of(allowed, kind):
        yield No(f"{kind} is not in allow.kinds ({listed(allowed)})")
    serves = kind in _serving() or case.facts.finding.kind == "idle_inference"
    if serves and not allowed:
        yield No(f"{kind} serves: it has to be named in allow.kinds")


@gate("production")
def _production(case: Case) -> Iterator[No]:
    if (case.facts.priority_class or "").startswith("system-"):
        yield No(f"priority class {case.facts.priority_class}: the cluster cannot do without it")
    if not case.policy.allow.production:
        for sign in _production_signs(case.facts):
            yield No(f"looks like production: {sign} (allow.production is false)")


@gate("verb")
def _verb(case: Case) -> Iterator[No]:
    advice, rung = case.facts.recommendation, case.policy.rung("act")
    permitted = rung.verbs if rung else ()
    if not any_of(permitted, advice.verb):
        yield No(f"{advice.verb!r} is not what the ladder allows ({listed(permitted)})")
    if not advice.reversible:
        yield No(f"{advice.verb!r} cannot be undone")


def _production_signs(facts: Facts) -> Iterator[str]:
    subject = facts.finding.subject
    space = set(re.split(r"[^a-z0-9]+", subject.namespace.lower()))
    priority = set(re.split(r"[^a-z0-9]+", (facts.priority_class or "").lower()))
    for where, key, value in _signs():
        if where == "namespace" and value in space:
            yield f"namespace {subject.namespace}"
        if where == "priority" and value in priority:
            yield f"priority class {facts.priority_class}"
        if where == "label":
            for whose, labels in (("", facts.labels), ("its namespace's ", facts.namespace_labels)):
                if labels.get(key, "").lower() == value:
                    yield f"{whose}label {key}={labels[key]}"


@cache
def _signs() -> tuple[tuple[str, str, str], ...]:
    rows = _table("production.csv")
    return tuple((row["where"], row["key"], row["value"]) for row in rows)


@cache
def _serving() -> frozenset[str]:
    return frozenset(row["workload_kind"] for row in _table("serving.csv"))


def _table(name: str) -> list[dict[str, str]]:
    text = files("actions.policy").joinpath(name).read_text(encoding="utf-8")
    return list(csv.DictReader(text.splitlines()))
