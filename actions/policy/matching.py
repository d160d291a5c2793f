"""Which cases a policy is about."""

import re
from collections.abc import Iterator, Mapping
from datetime import timedelta
from fnmatch import translate
from functools import lru_cache

from actions.policy.model import Match, Policy
from fallow.acting import Facts, Reason
from fallow.window import format_duration

_GATE = "match"
_STRETCHES = frozenset({"idle", "partly idle"})
"""Verdicts whose window is the time for which it has been so; others have their analyzer's."""


def matches(policy: Policy, facts: Facts) -> tuple[Reason, ...]:
    """Return why a case is not the policy's; nothing = it is. What is not known matches nothing."""
    wanted = policy.match
    return tuple(Reason(_GATE, text) for text in (*_words(wanted, facts), *_least(wanted, facts)))


def any_of(globs: tuple[str, ...], text: str | None) -> bool:
    """Say whether a text is one of some globs; an unknown text is none of them."""
    return text is not None and _pattern(globs).fullmatch(text) is not None


@lru_cache(maxsize=1024)
def _pattern(globs: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile("|".join(translate(glob) for glob in globs) or r"(?!)")


def _words(wanted: Match, facts: Facts) -> Iterator[str]:
    finding, subject = facts.finding, facts.finding.subject
    for name, globs, text in (
        ("analyzer", wanted.analyzer, finding.analyzer),
        ("kind", wanted.kind, finding.kind),
        ("verb", wanted.verb, facts.recommendation.verb),
        ("workload_kind", wanted.workload_kind, subject.workload_kind),
        ("cluster", wanted.cluster, subject.cluster),
        ("namespaces", wanted.namespaces, subject.namespace),
        ("queue", wanted.queue, facts.queue),
        ("owner", wanted.owner, facts.owner),
    ):
        if globs and not any_of(globs, text):
            yield f"{name} is {_said(text)}, wanted: {', '.join(globs)}"
    if wanted.not_namespaces and any_of(wanted.not_namespaces, subject.namespace):
        yield f"not_namespaces has {subject.namespace}"
    if wanted.gpu_model and not (
        facts.models and all(any_of(wanted.gpu_model, model) for model in facts.models)
    ):
        models = ", ".join(facts.models) or "unknown"
        yield f"gpu_model is {models}, wanted: {', '.join(wanted.gpu_model)}"
    if wanted.over_quota and facts.over_quota is not True:
        known = facts.over_quota is False
        yield f"over_quota is {'false' if known else 'unknown'}, wanted: true"
    yield from _labels("labels", wanted.labels, facts.labels)
    yield from _labels("namespace_labels", wanted.namespace_labels, facts.namespace_labels)


def _labels(
    name: str, wanted: Mapping[str, tuple[str, ...]], labels: Mapping[str, str]
) -> Iterator[str]:
    for key, globs in wanted.items():
        if not any_of(globs, labels.get(key)):
            yield f"{name}.{key} is {_said(labels.get(key))}, wanted: {', '.join(globs)}"


def _least(wanted: Match, facts: Facts) -> Iterator[str]:
    finding = facts.finding
    if wanted.evidence == "confirmed" and finding.evidence != "confirmed":
        yield f"evidence is {finding.evidence}, wanted: confirmed"
    if wanted.min_duration:
        lasted = facts.finding.window.end - facts.finding.window.start
        if finding.verdict not in _STRETCHES:
            yield f"min_duration: {finding.verdict} findings are of no stretch of idleness"
        elif lasted < wanted.min_duration:
            yield f"min_duration is {_span(lasted)}, wanted: {_span(wanted.min_duration)} or more"
    for name, least, seen in (
        ("confidence", wanted.confidence, finding.confidence),
        ("gpus", wanted.gpus, facts.gpus),
        ("gpu_hours", wanted.gpu_hours, finding.gpu_hours),
        ("gpu_hours_per_day", wanted.gpu_hours_per_day, facts.recommendation.gpu_hours_per_day),
        ("usd_per_day", wanted.usd_per_day, facts.usd_per_day),
    ):
        if least and not (seen is not None and seen >= least):
            yield f"{name} is {_said(seen)}, wanted: {least} or more"


def _span(length: timedelta) -> str:
    return format_duration(length.total_seconds())


def _said(value: object) -> str:
    return "unknown" if value is None else str(value)
