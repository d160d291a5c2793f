"""What its owner, or another tool at its owner's word, keeps from being stopped.

A protection on a pod, on any owner above it or on the namespace protects the whole workload. The
annotations, kinds and namespaces are those of `fallow/protections.csv`; here they are read from the
objects as they are now.
"""

from collections.abc import Iterator, Sequence
from datetime import datetime

from actions.cluster.objects import Object, annotations, deep, labels, namespace, shown
from actions.recommend import never
from fallow.acting import Reason
from fallow.protections import annotations as protecting
from fallow.protections import protections

GATE = "protected"


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
    for key, one in protecting().items():
        for said in (annotations(obj).get(key), labels(obj).get(key)):
            if said is not None and one.protects(said, now):
                yield f"{one.why}: {key}={said} on {shown(obj, 'Pod')}"
                break


def _priorities(obj: Object) -> Iterator[str]:
    used = deep(obj, "spec", "priorityClassName") or deep(
        obj, "spec", "template", "spec", "priorityClassName"
    )
    for one in protections():
        if one.where == "priority" and isinstance(used, str) and used.startswith(one.key):
            yield f"{one.why}: priority class {used} of {shown(obj, 'Pod')}"
