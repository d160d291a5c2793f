"""Store the results of collectors and executors when they change: at a fault's start and end."""

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import TYPE_CHECKING

from collectors.doctor import CheckRow
from fallow import plugin_runs
from fallow.plugin_runs import PluginRun

if TYPE_CHECKING:
    from warehouse.lake import Warehouse


class PluginRuns:
    """The last runs of the plugins of this process, in the warehouse and in its metrics."""

    def __init__(
        self, warehouse: "Warehouse", observe: Callable[[Iterable[PluginRun]], None]
    ) -> None:
        self._warehouse = warehouse
        self._observe = observe
        self._failed: set[tuple[str, str]] | None = None

    def keep(self, runs: Iterable[PluginRun], at: datetime) -> None:
        """Record results of plugins; the table is written if they differ from the last ones."""
        all_runs = [*runs]
        self._observe(all_runs)
        before = self._stored()
        new = [run for run in all_runs if (run.result == "failed") != (run.key in before)]
        if not new:
            return
        mine = self._warehouse.settings.cluster
        self._warehouse.ingest([plugin_runs.to_batch(new, cluster=mine, at=at)])
        for run in new:
            change = before.add if run.result == "failed" else before.discard
            change(run.key)

    def _stored(self) -> set[tuple[str, str]]:
        """Return which plugins failed last; at first from the table."""
        if self._failed is None:
            rows = self._warehouse.query(
                "SELECT kind, plugin FROM plugin_run"
                " WHERE result = 'failed' AND cluster = $cluster",
                {"cluster": self._warehouse.settings.cluster},
            )
            self._failed = {(row["kind"], row["plugin"]) for row in rows.to_pylist()}
        return self._failed


def check_plugins(warehouse: "Warehouse", *, cluster: str | None = None) -> "list[CheckRow]":
    """Return a row of `fallow doctor` per collector or executor whose last run raised.

    Analyzers are not among them: `doctor` runs them itself.
    """
    rows = warehouse.query(
        "SELECT kind, plugin, ts, reason FROM plugin_run WHERE result = 'failed'"
        " AND kind <> 'analyzer' AND ($cluster IS NULL OR cluster = $cluster) ORDER BY ALL",
        {"cluster": cluster},
    ).to_pylist()
    return [
        CheckRow(
            f"{row['kind']} {row['plugin']}",
            "bad",
            f"at {row['ts']:%Y-%m-%d %H:%M} UTC {row['reason']}",
            "the log of that run has the traceback; report it to who wrote the plugin",
        )
        for row in rows
    ]
