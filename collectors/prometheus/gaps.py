"""Detect gaps: a node's series stop while the window continues."""

from datetime import datetime, timedelta
from typing import Any

import numpy as np

from collectors.inventory import build_scrape_row
from collectors.prometheus.telemetry import SOURCE, TelemetryChunk
from fallow.window import format_duration

MEMORY = timedelta(hours=6)
"""A node without samples for longer than this before a chunk was removed, so it has no gap."""
INSIDE = 2.5
"""Intervals between two samples from which samples are missing."""
AT_START = 1.5
"""Intervals from the chunk's start to the first sample of a node that was there before."""
FEW = 3
"""Samples of a node in a chunk that are enough to measure its interval."""
USUAL = np.timedelta64(60, "s")
"""A node's interval before any chunk has shown it: most sites scrape exporters at this interval."""


class Silences:
    """Remembers which nodes had samples, chunk after chunk in time order."""

    def __init__(
        self,
        cluster: str,
        last_heard: dict[str, np.datetime64],
        intervals: dict[str, np.timedelta64] | None = None,
    ) -> None:
        self._cluster = cluster
        self._heard = dict(last_heard)
        self._every = dict(intervals or {})

    def rows(self, chunk: TelemetryChunk) -> list[dict[str, Any]]:
        """Return `scrape` rows with `up` false, one per gap, cut at the chunk's ends."""
        start, end = _drop_zone(chunk.window.start), _drop_zone(chunk.window.end)
        scrape_times = chunk.scrape_times
        bounds = np.searchsorted(scrape_times.node, np.arange(len(scrape_times.nodes) + 1))
        silences: list[tuple[str, np.datetime64, np.datetime64]] = []
        silent = {n for n, last in self._heard.items() if last >= start - np.timedelta64(MEMORY)}
        for code, node in enumerate(scrape_times.nodes):
            ts = scrape_times.ts[bounds[code] : bounds[code + 1]]
            if not node or not len(ts):
                continue
            interval = np.timedelta64(round(scrape_times.node_interval_s[code] * 1e6), "us")
            if len(ts) < FEW:
                interval = self._every.get(node, interval)
            if node in silent and ts[0] - start > AT_START * interval:
                silences.append((node, start, ts[0]))
            after = np.r_[ts[1:], end]
            missing = np.flatnonzero(after - ts > INSIDE * interval)
            silences += [(node, ts[i] + interval, after[i]) for i in missing]
            silent.discard(node)
            self._heard[node], self._every[node] = ts[-1], interval
        # A chunk shorter than the interval may have no sample of a node without any fault.
        usual = max(self._every.values(), default=USUAL)
        silences += [
            (node, start, end)
            for node in silent
            if end - self._heard[node] > INSIDE * self._every.get(node, usual)
        ]
        return [self._row(node, *stretch) for node, *stretch in sorted(silences)]

    def _row(self, node: str, start: np.datetime64, end: np.datetime64) -> dict[str, Any]:
        first, last = start.astype(datetime), end.astype(datetime)
        seconds = (last - first).total_seconds()
        return build_scrape_row(
            SOURCE,
            node,
            cluster=self._cluster,
            start=first,
            end=last,
            samples=0,
            error=f"no GPU series of this node for {format_duration(seconds)}",
        )


def _drop_zone(timestamp: datetime) -> np.datetime64:
    return np.datetime64(timestamp.replace(tzinfo=None), "us")
