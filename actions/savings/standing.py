"""The actions of a record whose savings are to be measured."""

from collections.abc import Sequence
from datetime import datetime, timedelta

from actions.journal import Record, Told
from actions.savings.acted import Acted

TOOK = frozenset({"done", "not sticking", "reverted", "undone"})


def acted_of(
    record: Record, *, since: datetime | None = None, watched: timedelta | None = None
) -> list[Acted]:
    """Return the actions that took, oldest first, and when their workloads came back.

    `watched`: how long it is looked whether they did; nothing is claimed of what comes after.
    """
    return [
        _acted(told, watched)
        for told in record.actions.values()
        if told.touched
        and told.action.intent.frees
        and any(o.result in TOOK for o in told.outcomes)
        and (since is None or told.action.at >= since)
    ]


def _acted(told: Told, watched: timedelta | None) -> Acted:
    cluster, kind, namespace, name = told.workload
    facts = told.facts
    return Acted(
        action=told.action.id,
        policy=told.action.decision.policy,
        cluster=cluster,
        namespace=namespace,
        workload_kind=kind,
        workload=name,
        at=told.action.at,
        back=back(told),
        left=told.ended,
        idle_since=facts.finding.window.start if facts is not None else None,
        regretted=_regretted(told),
        until=None if watched is None else told.action.at + watched,
    )


def back(told: Told) -> datetime | None:
    """Return when a workload came back: taken back, undone, or never stopped; None = not yet."""
    moments: Sequence[datetime] = [
        *((told.restored.at,) if told.restored else ()),
        *(o.at for o in told.outcomes if o.result in {"reverted", "undone", "not sticking"}),
    ]
    return min(moments, default=None)


def _regretted(told: Told, within: timedelta = timedelta(hours=24)) -> bool:
    taken = told.restored
    return taken is not None and taken.person and taken.at - told.action.at <= within
