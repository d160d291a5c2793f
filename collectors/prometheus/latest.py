"""Read what a few pods do on their hosts now, by instant queries, just before an action.

The usual rows are valid for whole five minutes of the clock's grid and arrive half a minute after
their end. That is too old before an action: these rates are of the last two minutes.
"""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from string import Template
from typing import Any

from collectors.inventory import build_batches, build_scrape_row
from collectors.prometheus.client import SKEW, PrometheusClient, format_failure
from collectors.prometheus.decode import decode_vector
from collectors.prometheus.tables import build_serving_queries, load_table
from collectors.prometheus.telemetry import SOURCE
from collectors.prometheus.usage import build_parameters
from collectors.series import list_metrics_of
from fallow.errors import FallowError, SourceError
from fallow.settings.collectors import PrometheusSettings
from fallow.tables import Batch

RANGE = timedelta(minutes=2)
"""Two scrapes of a kubelet at the usual interval of one minute: a rate needs two."""
ZERO = timedelta(0)
_SPECIAL = '.\\+*?()[]{}|^$"'


def read_latest(
    settings: PrometheusSettings,
    cluster: str,
    pods: Sequence[tuple[str, str]],
    at: datetime,
    *,
    client: PrometheusClient | None = None,
) -> Iterator[Batch]:
    """Yield `pod_sample` rows of pods (namespace, name) that end at a timestamp, and a `scrape`.

    There is a row for each pod that the server has any data of; a failure is a `scrape` row.
    """
    prometheus = client or PrometheusClient(settings)
    error: FallowError | None = None
    rows: list[dict[str, Any]] = []
    try:
        for space in sorted({namespace for namespace, _ in pods}):
            names = sorted(name for namespace, name in pods if namespace == space)
            rows += _build_rows(prometheus, settings.selector, cluster, space, names, at)
        _require_one_clock(prometheus)
    except FallowError as raised:
        error, rows = raised, []
    finally:
        if client is None:
            prometheus.close()
    yield from build_batches("pod_sample", rows)
    known_series = build_scrape_row(
        SOURCE,
        prometheus.name,
        cluster=cluster,
        start=_drop_zone(at),
        end=_drop_zone(at),
        samples=len(rows),
        error=None if error is None else format_failure(error),
    )
    yield from build_batches("scrape", [known_series])


def _require_one_clock(client: PrometheusClient) -> None:
    """Refuse values of a server whose clock differs: they are of another time than they say.

    Raises:
        SourceError: the clocks differ by more than `SKEW`.
    """
    if abs(client.ahead) <= SKEW:
        return
    length = abs(client.ahead).total_seconds()
    side = "ahead of" if client.ahead > ZERO else "behind"
    raise SourceError(
        f"the clock of {client.name} is {length:.0f} s {side} this machine's: how old its values "
        "are is unknown",
        hint="synchronise both with NTP",
    )


def _build_rows(  # noqa: PLR0917  (one caller)
    client: PrometheusClient,
    matchers: str,
    cluster: str,
    namespace: str,
    pods: Sequence[str],
    at: datetime,
) -> list[dict[str, Any]]:
    one_of = "|".join(_escape(pod) for pod in pods)
    pod_matcher = f'namespace="{_escape(namespace)}",pod=~"{one_of}"'
    selector = f"{matchers},{pod_matcher}" if matchers else pod_matcher
    span = f"{round(RANGE.total_seconds())}s"
    rows_by_pod: dict[str, dict[str, Any]] = {}
    parameters = build_parameters(list_metrics_of("power_w"), matchers, span)
    for query in (*load_table("queries"), *build_serving_queries()):
        expression = Template(query["expression"]).substitute(
            parameters, selector=selector, range=span
        )
        for label_set, value in decode_vector(client.query(expression, at)):
            row = rows_by_pod.setdefault(label_set.get("pod", ""), {})
            row[query["column"]] = value if value == value else None  # noqa: PLR0124  (NaN)
    return [
        {
            "cluster": cluster,
            "ts": _drop_zone(at - RANGE),
            "namespace": namespace,
            "pod": pod,
            "interval_s": RANGE.total_seconds(),
            **row,
        }
        for pod, row in sorted(rows_by_pod.items())
        if pod and any(value is not None for value in row.values())
    ]


def _escape(name: str) -> str:
    return "".join(f"\\\\{c}" if c in _SPECIAL else c for c in name)


def _drop_zone(timestamp: datetime) -> datetime:
    return timestamp.astimezone(UTC).replace(tzinfo=None)
