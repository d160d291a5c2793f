"""Query rates by pod over whole stretches of time that end on the clock's grid.

Row ts is valid for [ts, ts + every). The server computes the rates, because it knows counter
resets.
"""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from functools import cache

import numpy as np

from collectors.prometheus.client import PrometheusClient, TooMuchError
from collectors.prometheus.decode import Floats, Matrix, decode_labels, decode_matrix
from collectors.prometheus.raw import build_selector
from collectors.prometheus.tables import load_table
from fallow.window import Window

_EPOCH = datetime.fromtimestamp(0, UTC)


def find_whole_steps(window: Window, step: timedelta) -> Window | None:
    """Return the stretches of the grid that begin or lie in a window and have ended in it.

    The stretch in which the window begins is included: otherwise two short windows in sequence
    would miss the stretch that both touch.
    """
    start = _EPOCH + (window.start - _EPOCH) // step * step
    end = _EPOCH + (window.end - _EPOCH) // step * step
    return Window(start, end) if end > start else None


def query_grid(
    client: PrometheusClient,
    expression: str,
    window: Window,
    step: timedelta,
    *,
    lookback_s: float | None = None,
) -> list[Matrix]:
    """Evaluate at the end of every stretch; a query that is too large is sent in halves.

    Raises: as `PrometheusClient.get`.
    """
    try:
        body = client.query_range(
            expression, window.start + step, window.end, step.total_seconds(), lookback_s=lookback_s
        )
    except TooMuchError:
        if window.end - window.start <= step:
            raise
        half = max(int((window.end - window.start) / step) // 2, 1) * step
        return [
            m
            for part in window.chunks(half)
            for m in query_grid(client, expression, part, step, lookback_s=lookback_s)
        ]
    return [decode_matrix(body)]


def read_thinned(
    client: PrometheusClient, selected: str, window: Window, step: timedelta
) -> Matrix:
    """Return one sample of a selector per stretch: the newest at each grid time in [start, end).

    Its timestamp is the grid's. A sample older than the stretch is none, nor is one of a target
    that has gone (a stale marker), so that a gap of a stretch stays a gap.

    Raises: as `PrometheusClient.get`.
    """
    first = _EPOCH - (_EPOCH - window.start) // step * step
    last = _EPOCH - (_EPOCH - window.end) // step * step - step
    if last < first:
        return Matrix.joined([])
    stretches = Window(first - step, last)
    # Prometheus 2 counts a sample as old as the lookback, which the stretch before has already.
    lookback_s = step.total_seconds() - 0.001
    return Matrix.joined(query_grid(client, selected, stretches, step, lookback_s=lookback_s))


def decode_series_values(
    parts: Sequence[Matrix], window: Window, step: timedelta
) -> Iterator[tuple[dict[str, str], Floats]]:
    """Yield each series' labels and its values by stretch, NaN where there is none."""
    steps = round((window.end - window.start) / step)
    start = list_grid_times(window, step)[0]
    for part in parts:
        ends = np.cumsum(part.lengths)
        for text, low, high in zip(part.labels, ends - part.lengths, ends, strict=True):
            line = np.full(steps, np.nan)
            at = (part.ts[low:high] - start) // np.timedelta64(step) - 1
            inside = (at >= 0) & (at < steps)
            line[at[inside]] = part.values[low:high][inside]
            yield decode_labels(text), line


def list_grid_times(
    window: Window, step: timedelta
) -> np.ndarray[tuple[int], np.dtype[np.datetime64]]:
    """Return when each stretch begins."""
    steps = round((window.end - window.start) / step)
    start = np.datetime64(window.start.replace(tzinfo=None), "us")
    times = start + np.arange(steps) * np.timedelta64(step)
    return times.astype("datetime64[us]")


@cache
def list_replica_labels() -> str:
    """Return the labels that distinguish replicas of one Prometheus (`replica_labels.csv`)."""
    return ", ".join(row["label"] for row in load_table("replica_labels"))


def build_pod_query(expression: str, namespace_label: str, pod_label: str) -> str:
    """Give an expression's series the labels `namespace` and `pod`, whatever their own names."""
    for label, theirs in (("namespace", namespace_label), ("pod", pod_label)):
        if theirs != label:
            expression = f'label_replace({expression}, "{label}", "$1", "{theirs}", "(.+)")'
    return expression


def build_holders_query(
    names: Sequence[str], matchers: str, span: str, labels: Sequence[str] = ("namespace", "pod")
) -> str:
    """Return an expression for the pods (or containers) that held devices within `span`.

    It has these labels, whether or not the scraper renamed them `exported_*`.
    """
    parts = []
    for name in names:
        plain = build_selector(
            [name], ", ".join(p for p in (matchers, 'exported_pod="", pod!=""') if p)
        )
        other = build_selector([name], ", ".join(p for p in (matchers, 'exported_pod!=""') if p))
        renamed = f"last_over_time({other}[{span}])"
        for label in labels:
            renamed = f'label_replace({renamed}, "{label}", "$1", "exported_{label}", "(.+)")'
        parts += [f"last_over_time({plain}[{span}])", renamed]
    return " or ".join(f"max by ({', '.join(labels)}) ({p})" for p in parts)
