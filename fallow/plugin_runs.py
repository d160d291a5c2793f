"""Isolate plugins: an exception ends only its own plugin, and becomes a row that users see.

The log has the traceback and the plugin's name. The table `plugin_run` has the result of its last
run; pages, reports, `doctor` and metrics show it.
"""

import logging
from collections.abc import Iterable
from datetime import datetime
from typing import Literal

import msgspec

from fallow.tables import Batch
from fallow.window import Window

log = logging.getLogger("fallow.plugins")

Kind = Literal["analyzer", "collector", "executor", "price source"]
Result = Literal["done", "withheld", "failed"]


class PluginRun(msgspec.Struct, frozen=True):
    """The result of one run: done, withheld (data are missing), or failed (an exception)."""

    kind: Kind
    plugin: str
    result: Result
    reason: str = ""
    """Why nothing, or not everything, was judged."""

    @property
    def key(self) -> tuple[str, str]:
        """Return the key that identifies the plugin."""
        return self.kind, self.plugin


def log_failure(kind: Kind, plugin: str, error: BaseException) -> str:
    """Log the traceback of a plugin that failed, and return a sentence about it."""
    log.error("%s failed", kind, extra={kind: plugin}, exc_info=error)
    return f"it failed ({type(error).__name__}: {error}); the log has the traceback"


def to_batch(
    runs: Iterable[PluginRun], *, cluster: str, at: datetime, window: Window | None = None
) -> Batch:
    """Return rows of the `plugin_run` table; `window` is what an analyzer judged."""
    run_list = [*runs]
    timestamp, count = at.replace(tzinfo=None), len(run_list)
    span = window.bounds() if window else {"since": None, "until": None}
    return Batch.of(
        "plugin_run",
        {
            "cluster": [cluster] * count,
            "kind": [run.kind for run in run_list],
            "plugin": [run.plugin for run in run_list],
            "ts": [timestamp] * count,
            "start": [span["since"]] * count,
            "end": [span["until"]] * count,
            "result": [run.result for run in run_list],
            "reason": [run.reason for run in run_list],
        },
    )
