"""What its owner, or another tool at its owner's word, keeps from being stopped.

A protection on a pod, on any owner above it or on the namespace protects the whole workload. The
words are those of `protections.csv`; `actions/protections.csv` names kinds and namespaces that
are never stopped at all.
"""

import csv
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from functools import cache
from importlib.resources import files

import msgspec

from actions.cluster.objects import Object, annotations, deep, labels, namespace, shown
from actions.recommend import never
from fallow.acting import Reason

GATE = "protected"
_FALSE = {"false", "no", "0", "off"}


class Protection(msgspec.Struct, frozen=True):
    """A word that protects: `set` unless it says false, `until` a moment, else this very value."""

    where: str
    key: str
    value: str
    why: str


@cache
def protections() -> tuple[Protection, ...]:
    """Return the rows of `protections.csv`."""
    text = files("actions.cluster").joinpath("protections.csv").read_text(encoding="utf-8")
    return tuple(Protection(**row) for row in csv.DictReader(text.splitlines()))


def protected(
    chain: Sequence[Object], namespace_object: Object | None, now: datetime | None = None
) -> tuple[Reason, ...]:
    """Return why a workload is not stopped; () = nobody protects it.

    `chain`: its pods and every owner above them. Without `now` a moment protects for ever, as
    does one that cannot be read. Without its namespace's object nobody knows: that is a reason.
    """
    reasons = [] if namespace_object is not None else ["its namespace cannot be read"]
    for obj in chain:
        kind = str(obj.get("kind") or "Pod")
        # A pod with owners is stopped through them; one without is its executor's to judge.
        why = never("" if kind == "Pod" else kind, namespace(obj))
        if why is not None:
            reasons.append(f"{shown(obj, 'Pod')}: {why}")
    for obj in (*chain, *(() if namespace_object is None else (namespace_object,))):
        reasons.extend(_words(obj, now))
        reasons.extend(_priorities(obj))
    return tuple(Reason(GATE, text) for text in dict.fromkeys(reasons))


def _words(obj: Object, now: datetime | None) -> Iterator[str]:
    for one in protections():
        if one.where != "words":
            continue
        said = annotations(obj).get(one.key) or labels(obj).get(one.key)
        if said is not None and _protects(one, said.strip(), now):
            yield f"{one.why}: {one.key}={said} on {shown(obj, 'Pod')}"


def _protects(one: Protection, said: str, now: datetime | None) -> bool:
    if one.value == "set":
        return said.lower() not in _FALSE
    if one.value == "until":
        until = _moment(said)
        return now is None or until is None or until > now
    return said.lower() == one.value


def _moment(text: str) -> datetime | None:
    """Read a moment; without an offset it is UTC; None = it is none."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


def _priorities(obj: Object) -> Iterator[str]:
    used = deep(obj, "spec", "priorityClassName") or deep(
        obj, "spec", "template", "spec", "priorityClassName"
    )
    for one in protections():
        if one.where == "priority" and isinstance(used, str) and used.startswith(one.key):
            yield f"{one.why}: priority class {used} of {shown(obj, 'Pod')}"
