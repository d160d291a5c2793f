"""Read raw samples of a stretch of time: an instant query of a range vector.

`query_range` is not used, because it answers on its own grid and repeats the last sample for five
minutes (the lookback): a gap looks like data, and no timestamp is real. `metric[6h]` on
`/api/v1/query` returns the stored samples with their own timestamps, and nothing where there is
nothing. Thanos, Mimir, VictoriaMetrics and AMP return the same.
"""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import numpy as np

from collectors.prometheus.client import LEAST_S, PrometheusClient, TooMuchError
from collectors.prometheus.decode import Matrix, decode_matrix
from fallow.window import Window

_MILLISECOND = timedelta(milliseconds=1)
_EPOCH = datetime.fromtimestamp(0, UTC)
LEAST = timedelta(seconds=LEAST_S)


def build_selector(names: Sequence[str], matchers: str) -> str:
    """Return one selector for several names of one thing."""
    if len(names) == 1 and not matchers:
        return names[0]
    which = f'__name__=~"{"|".join(names)}"' if len(names) > 1 else f'__name__="{names[0]}"'
    return f"{{{', '.join(p for p in (which, matchers) if p)}}}"


def read_samples(client: PrometheusClient, selected: str, window: Window) -> Matrix:
    """Return the samples of a selector in [start, end), series by series in time order.

    A stretch that is too large for the server is queried in halves.

    Raises: as `PrometheusClient.get`.
    """
    length = round(window.seconds * 1000)
    try:
        # Prometheus 2 closes ranges on the left, 3 opens them: the range reaches one millisecond
        # further back than the window, and what lies before it is cut off.
        body = client.query(f"{selected}[{length}ms]", window.end - _MILLISECOND)
    except TooMuchError:
        if window.end - window.start <= LEAST:
            raise
        middle = _find_middle(window)
        halves = Window(window.start, middle), Window(middle, window.end)
        return Matrix.joined([read_samples(client, selected, half) for half in halves])
    return _cut(decode_matrix(body), window)


def _find_middle(window: Window) -> datetime:
    """Return a full minute of the clock: no step of samples that are thinned is cut."""
    middle = window.start + max(int((window.end - window.start) / LEAST) // 2, 1) * LEAST
    whole = middle - (middle - _EPOCH) % LEAST
    return whole if whole > window.start else middle


def _cut(matrix_found: Matrix, window: Window) -> Matrix:
    start, end = (np.datetime64(m.replace(tzinfo=None), "us") for m in (window.start, window.end))
    inside = (matrix_found.ts >= start) & (matrix_found.ts < end)
    if inside.all():
        return matrix_found
    series = np.repeat(np.arange(len(matrix_found.lengths)), matrix_found.lengths)
    lengths = np.bincount(series[inside], minlength=len(matrix_found.lengths))
    return Matrix(
        matrix_found.labels, lengths, matrix_found.ts[inside], matrix_found.values[inside]
    )
