"""Find the disruption budgets that cover a pod, and how many of its pods may be evicted now."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from itertools import pairwise

import msgspec

from fallow.disruptions import CoveringBudget
from fallow.protocols import Views
from fallow.rows import Row, decode_rows
from fallow.selectors import LabelSelector, match_selector
from fallow.window import Window
from warehouse.steps import compose_query, load_step

EVER_US = 2**62
"""Microseconds before and after 1970: all of time."""
RECENT = timedelta(hours=1)
"""How far back a poll of budgets is searched for where no budget was found."""


class BudgetPoll(Row, frozen=True):
    """A cluster, and whether the last poll read all of its budgets (`budget_polls.sql`)."""

    cluster: str
    up: bool


class BudgetObject(Row, frozen=True):
    """A disruption budget in its last observed state, and its life (`budgets.sql`)."""

    cluster: str
    namespace: str
    name: str
    selector: str
    min_available: str | None
    max_unavailable: str | None
    allowed: int
    counted: bool
    """Whether its controller has counted the pods that it covers."""
    from_us: int | None = None
    to_us: int | None = None

    def is_there(self, at_us: int) -> bool:
        """Return whether it was in force at a time."""
        return (self.from_us or at_us) <= at_us and (self.to_us is None or at_us < self.to_us)

    @property
    def label_selector(self) -> LabelSelector:
        """Its selector as in its spec."""
        return msgspec.json.decode(self.selector, type=LabelSelector)


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

    def __init__(self, budgets: Iterable[BudgetObject], polls: Iterable[BudgetPoll] = ()) -> None:
        self._by_place: dict[tuple[str, str], list[DisruptionBudget]] = defaultdict(list)
        self._polled = {poll.cluster: poll.up for poll in polls}
        for row in budgets:
            self._polled.setdefault(row.cluster, True)
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
        there = [row for row in _read_budgets(views, window.end) if row.to_us is None]
        return cls(there, _read_polls(views, window.end))

    def is_polled(self, cluster: str) -> bool:
        """Return whether a cluster's budgets were polled: if not, there may be unknown budgets."""
        return self._polled.get(cluster, False)

    def is_unread(self, cluster: str) -> bool:
        """Return whether the last poll did not read all of a cluster's budgets."""
        return not self._polled.get(cluster, True)

    def count(
        self, cluster: str, namespace: str, pod_labels: Iterable[str | None]
    ) -> tuple[CoveringBudget, ...] | None:
        """Return the budgets of pods with these labels (JSON); None = they were not polled."""
        if not self.is_polled(cluster):
            return None
        covered = [b for labels in pod_labels for b in self.of(cluster, namespace, labels)]
        allowed = {b.id: b.allowed if b.counted else None for b in covered}
        return tuple(
            CoveringBudget(name, allowed[name], pods)
            for name, pods in Counter(b.id for b in covered).items()
        )

    def of(self, cluster: str, namespace: str, labels: str | None) -> list[DisruptionBudget]:
        """Return the budgets that cover a pod with these labels (JSON), by name."""
        there = self._by_place.get((cluster, namespace))
        if not there:
            return []
        words = msgspec.json.decode(labels or "{}", type=dict[str, str])
        return [budget for budget in there if match_selector(budget.selector, words)]


class BudgetHistory:
    """The budgets of every cluster over time, each in its last observed state."""

    def __init__(self, views: Views, until: datetime, *, is_polled: bool = True) -> None:
        """`is_polled` False: of a cluster without any it is not known whether it was polled."""
        self._polls = _read_polls(views, until) if is_polled else []
        self._budgets = _read_budgets(views, until)
        self._by_place: dict[tuple[str, str], list[BudgetObject]] = defaultdict(list)
        for row in self._budgets:
            self._by_place[row.cluster, row.namespace].append(row)
        self._none = DisruptionBudgets((), self._polls)

    def find(self, at_us: int) -> DisruptionBudgets:
        """Return the budgets that were in force at a time."""
        there = [row for row in self._budgets if row.is_there(at_us)]
        polls = [BudgetPoll(name, up=True) for name in {row.cluster for row in self._budgets}]
        return DisruptionBudgets(there, [*polls, *self._polls])

    def list_states(
        self, cluster: str, namespace: str
    ) -> Iterator[tuple[int, int, DisruptionBudgets]]:
        """Yield from when to when which budgets of a namespace were in force: all of time."""
        rows = self._by_place.get((cluster, namespace))
        if rows is None:
            yield -EVER_US, EVER_US, self._none
            return
        ends = {end for row in rows for end in (row.from_us, row.to_us) if end is not None}
        for start, end in pairwise([-EVER_US, *sorted(ends), EVER_US]):
            there = [row for row in rows if row.is_there(start)]
            yield start, end, DisruptionBudgets(there, self._polls) if there else self._none


def _read_polls(views: Views, until: datetime) -> list[BudgetPoll]:
    rows = views.query(load_step("inventory/budget_polls"), _list_times(until))
    return decode_rows(rows, BudgetPoll)


def _read_budgets(views: Views, until: datetime) -> list[BudgetObject]:
    steps = ("inventory/last_lists", "inventory/budget_polls", "inventory/budgets")
    return decode_rows(views.query(compose_query(steps), _list_times(until)), BudgetObject)


def _list_times(until: datetime) -> dict[str, datetime]:
    end = until.replace(tzinfo=None)
    return {"since": end - RECENT, "until": end}


def _describe_wanted(row: BudgetObject) -> str:
    named = (("minAvailable", row.min_available), ("maxUnavailable", row.max_unavailable))
    return ", ".join(f"{name} {value}" for name, value in named if value) or "nothing"
