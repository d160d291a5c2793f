"""Match cases with policies."""

import re
from collections.abc import Collection, Iterator, Mapping
from datetime import timedelta
from fnmatch import translate
from functools import lru_cache

from actions.policy.model import Match, Policy
from fallow.action_models import Facts, Reason
from fallow.disruptions import CoveringBudget
from fallow.window import format_duration

_GATE = "match"
_STRETCHES = frozenset({"idle", "partly idle"})
"""Verdicts whose window is the duration of the state; other findings have their analyzer's window.
"""


def explain_mismatch(policy: Policy, facts: Facts) -> tuple[Reason, ...]:
    """Return why a case does not match the policy; empty = it matches.

    An unknown value does not match.
    """
    match = policy.match
    return tuple(
        Reason(_GATE, text)
        for text in (*_check_texts(match, facts), *_check_minimums(match, facts))
    )


def is_any_match(globs: tuple[str, ...], text: str | None) -> bool:
    """Return whether a text matches one of some globs; an unknown text matches none."""
    return text is not None and _compile_pattern(globs).fullmatch(text) is not None


def list_excesses(budgets: Collection[CoveringBudget], held_by: tuple[str, ...]) -> list[str]:
    """Return why budgets hold, but for those that a policy lifts; one not counted is not lifted."""
    return [
        budget.excess
        for budget in budgets
        if budget.excess and (budget.allowed is None or not is_any_match(held_by, budget.name))
    ]


@lru_cache(maxsize=1024)
def _compile_pattern(globs: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile("|".join(translate(glob) for glob in globs) or r"(?!)")


def _check_texts(match: Match, facts: Facts) -> Iterator[str]:
    finding, subject = facts.finding, facts.finding.subject
    for name, globs, text in (
        ("analyzer", match.analyzer, finding.analyzer),
        ("kind", match.kind, finding.kind),
        ("verb", match.verb, facts.recommendation.verb),
        ("workload_kind", match.workload_kind, subject.workload_kind),
        ("cluster", match.cluster, subject.cluster),
        ("namespaces", match.namespaces, subject.namespace),
        ("queue", match.queue, facts.queue),
        ("owner", match.owner, facts.owner),
    ):
        if globs and not is_any_match(globs, text):
            yield f"{name} is {_format_value(text)}, wanted: {', '.join(globs)}"
    if match.not_namespaces and is_any_match(match.not_namespaces, subject.namespace):
        yield f"not_namespaces has {subject.namespace}"
    if match.gpu_model and not (
        facts.models and all(is_any_match(match.gpu_model, model) for model in facts.models)
    ):
        models = ", ".join(facts.models) or "unknown"
        yield f"gpu_model is {models}, wanted: {', '.join(match.gpu_model)}"
    if match.over_quota and facts.over_quota is not True:
        is_known = facts.over_quota is False
        yield f"over_quota is {'false' if is_known else 'unknown'}, wanted: true"
    yield from _list_labels("labels", match.labels, facts.labels)
    yield from _list_labels("namespace_labels", match.namespace_labels, facts.namespace_labels)


def _list_labels(
    name: str, patterns: Mapping[str, tuple[str, ...]], labels: Mapping[str, str]
) -> Iterator[str]:
    for key, globs in patterns.items():
        if not is_any_match(globs, labels.get(key)):
            yield f"{name}.{key} is {_format_value(labels.get(key))}, wanted: {', '.join(globs)}"


def _check_minimums(match: Match, facts: Facts) -> Iterator[str]:
    finding = facts.finding
    if match.evidence == "confirmed" and finding.evidence != "confirmed":
        yield f"evidence is {finding.evidence}, wanted: confirmed"
    if match.min_duration:
        lasted = facts.finding.window.end - facts.finding.window.start
        if finding.verdict not in _STRETCHES:
            yield f"min_duration: {finding.verdict} findings are of no stretch of idleness"
        elif lasted < match.min_duration:
            yield f"min_duration is {_span(lasted)}, wanted: {_span(match.min_duration)} or more"
    for name, minimum, value in (
        ("confidence", match.confidence, finding.confidence),
        ("gpus", match.gpus, facts.gpus),
        ("gpu_hours", match.gpu_hours, finding.gpu_hours),
        ("gpu_hours_per_day", match.gpu_hours_per_day, facts.recommendation.gpu_hours_per_day),
        ("usd_per_day", match.usd_per_day, facts.usd_per_day),
    ):
        if minimum and not (value is not None and value >= minimum):
            yield f"{name} is {_format_value(value)}, wanted: {minimum} or more"


def _span(length: timedelta) -> str:
    return format_duration(length.total_seconds())


def _format_value(value: object) -> str:
    return "unknown" if value is None else str(value)
