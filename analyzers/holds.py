"""Find what holds a pod although it is idle: disruption budgets that allow none, and standbys.

What its owner wrote is no evidence of work: the waste is reported with its dollars as held, and a
policy that names the hold (`allow.held_by`) lifts it.
"""

from collections.abc import Iterator
from functools import cache

import msgspec

from analyzers.queries import load_records
from fallow.idle_details import Hold
from fallow.rows import Row
from warehouse.disruption_budgets import DisruptionBudgets


class StandbySign(Row, frozen=True):
    """A label or container of pods that rest until others fail (`holds.csv`)."""

    where: str
    key: str
    why: str
    values: str = ""


class PodMarks(msgspec.Struct, frozen=True):
    """What the inventory has of a pod's labels and containers, both JSON."""

    cluster: str
    namespace: str
    labels: str | None
    containers: str | None


@cache
def read_standby_signs() -> tuple[StandbySign, ...]:
    """Return the rows of `holds.csv`."""
    return tuple(load_records("holds", StandbySign))


def find_holds(pod: PodMarks, budgets: DisruptionBudgets) -> Iterator[Hold]:
    """Yield what holds a pod, budgets first."""
    for budget in budgets.count(pod.cluster, pod.namespace, [pod.labels]) or ():
        if budget.excess:
            yield Hold(budget.excess, budget.name if budget.allowed is not None else "")
    labels = msgspec.json.decode(pod.labels or "{}", type=dict[str, str])
    for sign in read_standby_signs():
        if sign.where == "label" and labels.get(sign.key, "").lower() in sign.values.split():
            name = f"{sign.key}={labels[sign.key]}"
            yield Hold(f"held by {name}: {sign.why}", name)
        elif sign.where == "container" and sign.key in _list_containers(pod.containers):
            yield Hold(f"held by {sign.key}: {sign.why}", sign.key)


class _Container(msgspec.Struct):
    name: str = ""


def _list_containers(stored: str | None) -> list[str]:
    return [c.name for c in msgspec.json.decode(stored or "[]", type=list[_Container])]
