"""Find the disruption budgets that cover a pod, and how many of its pods may be evicted now."""

from collections import defaultdict
from collections.abc import Iterable
from datetime import timedelta

import msgspec

from analyzers.rows import BudgetObject, read_budgets, read_polled_clusters
from fallow.protocols import Views
from fallow.selectors import LabelSelector, match_selector
from fallow.window import Window

RECENT = timedelta(hours=1)
"""How far back a poll of budgets is searched for where no budget was found."""


class DisruptionBudget(msgspec.Struct, frozen=True):
    """One disruption budget in its last observed state."""

    namespace: str
    name: str
    wants: str
    """As in its spec: `minAvailable 2`."""
    allowed: int
    counted: bool
    selector: LabelSelector

    @property
    def id(self) -> str:
        """Return its id within its cluster."""
        return f"{self.namespace}/{self.name}"


class DisruptionBudgets:
    """The budgets of every cluster of the warehouse."""

    def __init__(self, budgets: Iterable[BudgetObject], polled: Iterable[str] = ()) -> None:
        self._by_place: dict[tuple[str, str], list[DisruptionBudget]] = defaultdict(list)
        self._polled = set(polled)
        for row in budgets:
            self._polled.add(row.cluster)
            self._by_place[row.cluster, row.namespace].append(
                DisruptionBudget(
                    row.namespace,
                    row.name,
                    _describe_wanted(row),
                    row.allowed,
                    row.counted,
                    row.label_selector,
                )
            )

    @classmethod
    def read(cls, views: Views, window: Window) -> "DisruptionBudgets":
        """Return the budgets that are in force at the end of the window."""
        until = window.end.replace(tzinfo=None)
        polls = read_polled_clusters(views, until - RECENT, until)
        return cls(read_budgets(views), (row.cluster for row in polls))

    def is_polled(self, cluster: str) -> bool:
        """Return whether a cluster's budgets were polled: if not, there may be unknown budgets."""
        return cluster in self._polled

    def of(self, cluster: str, namespace: str, labels: str | None) -> list[DisruptionBudget]:
        """Return the budgets that cover a pod with these labels (JSON), by name."""
        there = self._by_place.get((cluster, namespace))
        if not there:
            return []
        words = msgspec.json.decode(labels or "{}", type=dict[str, str])
        return [budget for budget in there if match_selector(budget.selector, words)]


def _describe_wanted(row: BudgetObject) -> str:
    named = (("minAvailable", row.min_available), ("maxUnavailable", row.max_unavailable))
    return ", ".join(f"{name} {value}" for name, value in named if value) or "nothing"
