"""The four seams, one method each. A plugin is a class with this shape, found by entry point.

    fallow.collectors   Collector.collect(window) -> batches
    fallow.analyzers    Analyzer.find(views, window) -> findings
    fallow.executors    Executor.apply(decision)          (with the action layer)
    fallow.prices       PriceSource.rates(window) -> rows of the `rate` table

A class's fields are its YAML: whatever its constructor takes may stand under its name in
`fallow.yaml`.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Protocol, runtime_checkable

import pyarrow as pa

from fallow.nouns import Finding
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


@runtime_checkable
class PriceSource(Protocol):
    """Bring prices in."""

    def rates(self, window: Window) -> Batch:
        """Return rows of the `rate` table that were valid in the window."""
        ...
