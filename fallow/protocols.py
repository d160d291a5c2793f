"""Define the four protocols of plugins, one method each. An entry point names a plugin's class.

    fallow.collectors   Collector.collect(window) -> batches
    fallow.analyzers    Analyzer.find(views, window) -> findings   (optional protocols: see below)
    fallow.executors    Executor.writes(decision, cluster) -> intent
    fallow.prices       PriceSource.rates(window) -> rows of the `rate` table

A class's fields are its YAML: every parameter of its constructor may be set under its name in
`fallow.yaml`.
"""

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime, timedelta
from typing import Any, ClassVar, Protocol, runtime_checkable

import msgspec
import pyarrow as pa

from fallow.action_models import Action, Decision, Intent, Reason, Target
from fallow.models import Finding, Subject
from fallow.tables import Batch
from fallow.window import Window


@runtime_checkable
class Collector(Protocol):
    """Collect rows. A collector judges nothing and uses neither SQL nor the warehouse.

    A scrape that fails is a row of the `scrape` table with `up` false and the error. It is never
    left out and never an exception, except for usage errors (such as a wrong URL scheme).
    """

    def collect(self, window: Window) -> Iterator[Batch]:
        """Yield batches for the window, of limited size, in time order where rows have a time."""
        ...


class WatchCounts(Protocol):
    """What one watch did since it began, as counts."""

    resource: str
    lists: int
    streams: int
    events: int
    expiries: int
    failures: int
    error: str


@runtime_checkable
class WatchesChanges(Protocol):
    """A collector that can keep its inventory current by watches, between two collections."""

    def watch(self, stop: threading.Event) -> AbstractContextManager[None]:
        """Watch until the block ends or `stop` is set."""
        ...

    def changes(self) -> AbstractContextManager[Sequence[Batch]]:
        """Yield the rows that changed; rows that the block fails to store are yielded again."""
        ...

    def progress(self) -> Sequence[WatchCounts]:
        """Return what each watch did so far; empty while none runs."""
        ...


class Views(Protocol):
    """The warehouse's read side, as analyzers see it: one view per noun, over all tiers."""

    def query(self, sql: str, parameters: Mapping[str, Any] | None = None) -> pa.Table:
        """Run one read-only statement with `$name` parameters and return its rows."""
        ...


@runtime_checkable
class Analyzer(Protocol):
    """Turn rows into findings."""

    def find(self, views: Views, window: Window) -> Iterable[Finding]:
        """Return what is wasted in the window. Running it twice returns the same findings."""
        ...


class UnjudgedWork(Protocol):
    """What an analyzer does not judge, and why."""

    @property
    def subject(self) -> Subject:
        """The workload."""
        ...

    @property
    def gpu_hours(self) -> float:
        """How much of the window is not judged."""
        ...

    @property
    def reasons(self) -> tuple[str, ...]:
        """The reasons, as sentences."""
        ...


@runtime_checkable
class ReportsUnjudged(Protocol):
    """An analyzer that reports what it withholds: `fallow doctor` shows it."""

    def unjudged(self, views: Views, window: Window) -> Iterable[UnjudgedWork]:
        """Return what is not judged in the window, and why."""
        ...


@runtime_checkable
class BlocksAdvice(Protocol):
    """An analyzer that finds workloads which must not be reduced: no advice reduces them."""

    def vetoes(self, views: Views, window: Window) -> Mapping[tuple[str, str, str, str], str]:
        """Return why, by cluster, namespace, kind and name of the workload."""
        ...


@runtime_checkable
class ReportsSummary(Protocol):
    """An analyzer with figures of the whole fleet: `fallow analyze -o json` carries them."""

    def summary(self, views: Views, window: Window) -> Mapping[str, Any]:
        """Return the fleet's figures of the window."""
        ...


@runtime_checkable
class Explainable(Protocol):
    """An analyzer that shows the rows behind a finding: `fallow explain` runs them."""

    def proof(self, finding: Finding) -> Iterable[tuple[str, str, Mapping[str, Any]]]:
        """Return what each query answers, its SQL, and its parameters."""
        ...


class PastFindings(Protocol):
    """What an analyzer would have found at each of many timestamps, from the rows before it."""

    @property
    def rows(self) -> pa.Table:
        """Return a row per finding and timestamp, sorted by case and timestamp.

        case (the finding's number), k (the timestamp's number), mark (changes when a value changes
        that does not only grow), cluster, namespace, workload_kind, workload, kind, evidence,
        confidence, coverage, gpu_hours, usd, start and end of its window (us since 1970), and
        where `mark` does not change with it, wanted (the probability of a return, 0-1).
        """
        ...

    def finding(self, row: int) -> Finding:
        """Return the finding of a row as the analyzer would have found it then."""
        ...


@runtime_checkable
class Replayable(Protocol):
    """An analyzer that computes its past results in one pass: `fallow backtest` uses it."""

    def replay(self, views: Views, window: Window, times: Sequence[datetime]) -> PastFindings:
        """Return what `find` would have returned for [window.start, t) at each timestamp t."""
        ...


@runtime_checkable
class FindsLatest(Protocol):
    """An analyzer that finds current waste and its start, and reads little to do so."""

    def find_latest(self, views: Views, window: Window, brief: timedelta) -> Iterable[Finding]:
        """Return what `find` returns for the short time before the window's end.

        Cases that fill the short time are judged over the whole window.
        """
        ...


@runtime_checkable
class PriceSource(Protocol):
    """Provide prices."""

    def rates(self, window: Window) -> Batch:
        """Return rows of the `rate` table that were valid in the window."""
        ...


class ClusterReader(Protocol):
    """The API's read side, as executors see it. Objects are dicts; 404 is None; 403 is an error."""

    @property
    def name(self) -> str:
        """The cluster's name as in the rows."""
        ...

    def get(self, path: str) -> Mapping[str, Any] | None:
        """Return one object; None = it does not exist.

        Raises:
            RefusedError: the API forbids reading it.
            TemporaryError: no response.
        """
        ...

    def items(
        self, path: str, *, labels: str = "", fields: str = ""
    ) -> Sequence[Mapping[str, Any]]:
        """Return all objects of a collection that selectors match."""
        ...

    def collection(self, kind: str, group: str | None = None, namespace: str = "") -> str | None:
        """Return the path of a kind's collection by discovery; None = it is not served."""
        ...

    def pods(self, target: Target) -> Sequence[Mapping[str, Any]]:
        """Return all pods whose chain of controllers (or label link) ends at the object."""
        ...


class Right(msgspec.Struct, frozen=True):
    """One permission that an executor needs: RBAC is generated from these, `doctor` checks them."""

    group: str
    resource: str
    verbs: tuple[str, ...]


@runtime_checkable
class Executor(Protocol):
    """Return the writes that carry out a decision, and the writes that undo them. It sends nothing.

    The one loop (`actions/loop/`) sends the writes, so that the journal before the write, dry run,
    preconditions, undo and repair after a crash are the same for every kind of workload.
    """

    kinds: ClassVar[frozenset[str]]
    """Kinds of subjects it acts on, as findings name them."""
    capabilities: ClassVar[frozenset[str]]
    """What it can do: suspend, scale, evict, resize, quota, node, annotate, … A policy may require
    only these."""
    verbs: ClassVar[frozenset[str]]
    """Verbs of recommendations that it carries out."""
    rights: ClassVar[tuple[Right, ...]]

    def writes(self, decision: Decision, cluster: ClusterReader) -> Intent:
        """Return the writes for a decision, from the objects as they are now.

        Raises:
            RefusedError: the change is not allowed or not possible; the message contains the
            reason.
            TemporaryError: the API does not respond.
        """
        ...


@runtime_checkable
class ReviewsEffects(Protocol):
    """An executor whose effect shows in stored rows, hours later: harmful actions are undone."""

    def review(self, action: Action, views: Views, now: datetime) -> tuple[Reason, ...] | None:
        """Return why an action did harm; () = it did no harm; None = too early to decide."""
        ...
