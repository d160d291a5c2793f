"""The four seams, one method each. A plugin is a class with this shape, found by entry point.

    fallow.collectors   Collector.collect(window) -> batches
    fallow.analyzers    Analyzer.find(views, window) -> findings   (more where it can: see below)
    fallow.executors    Executor.apply(decision)          (with the action layer)
    fallow.prices       PriceSource.rates(window) -> rows of the `rate` table

A class's fields are its YAML: whatever its constructor takes may stand under its name in
`fallow.yaml`.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Protocol, runtime_checkable

import pyarrow as pa

from fallow.nouns import Finding, Subject
from fallow.tables import Batch
from fallow.window import Window


@runtime_checkable
class Collector(Protocol):
    """Bring rows in. No opinions, no SQL, no warehouse.

    A look that fails is a row of the `scrape` table with `up` false and the error; it is never
    silence and never an exception, except for errors of usage (a wrong URL scheme, say).
    """

    def collect(self, window: Window) -> Iterator[Batch]:
        """Yield batches for the window, bounded in size, in time order where there is one."""
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


class Doubt(Protocol):
    """What an analyzer does not judge, and why."""

    @property
    def subject(self) -> Subject:
        """Whom it is about."""
        ...

    @property
    def gpu_hours(self) -> float:
        """How much of the window is not judged."""
        ...

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why, in words."""
        ...


@runtime_checkable
class Doubting(Protocol):
    """An analyzer that says what it withholds: `fallow doctor` shows it."""

    def unjudged(self, views: Views, window: Window) -> Iterable[Doubt]:
        """Return what is not judged in the window, and why."""
        ...


@runtime_checkable
class Summarising(Protocol):
    """An analyzer with figures of the whole fleet: `fallow analyze -o json` carries them."""

    def summary(self, views: Views, window: Window) -> Mapping[str, Any]:
        """Return the fleet's figures of the window."""
        ...


@runtime_checkable
class Proving(Protocol):
    """An analyzer that shows the rows behind a finding: `fallow explain` runs them."""

    def proof(self, finding: Finding) -> Iterable[tuple[str, str, Mapping[str, Any]]]:
        """Return what each query asks, its SQL, and its parameters."""
        ...


@runtime_checkable
class PriceSource(Protocol):
    """Bring prices in."""

    def rates(self, window: Window) -> Batch:
        """Return rows of the `rate` table that were valid in the window."""
        ...
