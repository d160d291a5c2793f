"""Collect from a Prometheus: a window of its history, chunk by chunk, resumable."""

import itertools
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from typing import Any

import msgspec

from collectors.inventory import PART, build_batches, build_scrape_row
from collectors.kube.addresses import address_rows
from collectors.kube.pods import ENDED
from collectors.prometheus import cursors, kube_state, newest, pod_identity
from collectors.prometheus.client import SKEW, PrometheusClient, format_failure
from collectors.prometheus.clusters import find_mixture, list_cluster_labels
from collectors.prometheus.cursors import Piece
from collectors.prometheus.decode import Matrix, decode_vector
from collectors.prometheus.gaps import MEMORY, Silences
from collectors.prometheus.grid import build_holders_query, find_whole_steps
from collectors.prometheus.latencies import Latencies
from collectors.prometheus.progress import ProgressQueries
from collectors.prometheus.raw import LEAST, build_selector, read_samples
from collectors.prometheus.remote_read import RemoteReader
from collectors.prometheus.steps import Steps
from collectors.prometheus.telemetry import SOURCE, Telemetry, TelemetryChunk, list_metric_names
from collectors.prometheus.usage import CONTAINERS, Usage
from fallow.errors import FallowError
from fallow.rejections import Rejection, build_batch
from fallow.settings.collectors import KubernetesSettings, PrometheusSettings
from fallow.tables import Batch
from fallow.window import Window

SETTLE = timedelta(seconds=30)
"""The newest data are left for the next run: a scrape is stored only when it is complete, and rows
are written once, so a row that is read too early would stay incomplete."""
OVERLAP = timedelta(minutes=5)
"""A live run queries this much time again, for rows that arrived late (remote write)."""
YOUNG = timedelta(hours=1)
MAX_SAMPLES = 12_000_000
"""Values of one chunk in memory, 20 bytes each, while its rows are built."""
MOST_AHEAD = 3
"""Metrics of a chunk that are read before they are used, 16 bytes a value."""
LEAST_REMOTE = 2_000_000
"""Values of a window from which it is read by remote read: a small one is read as JSON at once."""
CHUNK_SPANS = tuple(timedelta(minutes=m) for m in (720, 360, 180, 120, 60, 30, 20, 10, 5, 2, 1))
INVENTORY_EVERY = timedelta(minutes=5)
"""Shortest pause between queries of kube-state-metrics: its answers are large and change slowly."""
MOST_CHANGES = 24
"""Times in a window at which nodes changed and are read again: the newest."""
BEFORE = timedelta(hours=1)
"""A run continues from the end of the last run if that end is at most this long before its window.
Each run leaves out the newest data and the stretch that has not ended."""
LEAST_GRID = timedelta(minutes=5)
"""Shortest step to which a server thins: its usual lookback, which would hide a shorter gap."""
_TELEMETRY, _INVENTORY = "telemetry", "inventory"


def _get_utc_now() -> datetime:
    return datetime.now(UTC)


class TelemetryPart(msgspec.Struct, frozen=True):
    """A chunk of telemetry that is not read yet: its time, its cursor, names by column."""

    window: Window
    piece: Piece
    groups: Mapping[str, Sequence[str]]
    is_large: bool = False
    """The window has so many values that remote read is worth its check."""

    def __str__(self) -> str:
        return f"telemetry {self.window.start:%Y-%m-%d %H:%M} to {self.window.end:%Y-%m-%d %H:%M}"


class PartAnswer(msgspec.Struct, frozen=True):
    """The rows of a chunk, its scrapes, and the seconds and the queries that reading took."""

    batches: tuple[Batch, ...]
    chunk: TelemetryChunk
    seconds: float
    queries: int


class PrometheusCollector:
    """Read device telemetry, inventory and pod usage from a Prometheus API.

    `done` maps names of `cursor` rows to their `done_until` (from the warehouse): the time that
    they cover is not queried again. The instance remembers the cursors of this run, so that one
    instance can serve a whole service. `failure` is the error that stopped the last `collect`, else
    None.
    """

    def __init__(
        self,
        settings: PrometheusSettings,
        cluster: str = "default",
        clock: Callable[[], datetime] = _get_utc_now,
        *,
        sleep: Callable[[float], None] = time.sleep,
        cursors: Mapping[str, datetime] | None = None,
        team_labels: Sequence[str] | None = None,
        only: Sequence[str] = (),
        max_samples: int = MAX_SAMPLES,
        on_grid: bool = False,
    ) -> None:
        """Prepare; no query is sent yet. `only` names canonical columns (empty = all).

        `on_grid`: the server thins to a step of at least `LEAST_GRID`, on the clock's grid.

        Raises:
            UsageError: the URL is not an address.
        """
        self._settings = settings
        self._cluster = cluster
        self._clock = clock
        self._cursors = {name: _add_zone(until) for name, until in (cursors or {}).items()}
        self._teams = KubernetesSettings().team_labels if team_labels is None else team_labels
        self._max_samples = max_samples
        self._on_grid = on_grid and settings.step >= LEAST_GRID
        self.thinned_values = 0
        """Values of the window that the server thinned to the step; 0 = it did not."""
        self.client = PrometheusClient(settings, sleep=sleep)
        self._telemetry = Telemetry(
            self.client, cluster=cluster, step=settings.step, matchers=settings.selector, only=only
        )
        common: dict[str, Any] = {"cluster": cluster, "matchers": settings.selector}
        self._gridded: dict[str, Usage | Latencies | Steps | ProgressQueries] = {
            "usage": Usage(self.client, **common),
            "containers": Usage(self.client, table=CONTAINERS, **common),
            "latencies": Latencies(self.client, own=settings.latency_metrics, **common),
            "steps": Steps(self.client, own=settings.step_metrics, **common),
            "progress": ProgressQueries(self.client, own=settings.progress_metrics, **common),
        }
        self._silences: tuple[datetime, Silences] | None = None
        self._remote: RemoteReader | None = None
        self._is_of_one_cluster = False
        self._is_begun = False
        """Slices of this run were read: their queries count."""
        self.failure: FallowError | None = None

    def prefix(self, part: str) -> str:
        """Return the prefix of the names of this server's cursors for a part."""
        matchers = f"{{{self._settings.selector}}}" if self._settings.selector else ""
        return f"{SOURCE} {self.client.name}{matchers} {part}"

    def collect(self, window: Window) -> Iterator[Batch]:
        """Yield the part of a window that is not done: rows, scrapes, gaps, and a cursor per chunk.

        In time order: `sample`, `holding`, `scrape`, `cursor` of each chunk of telemetry, then
        `node`, `pod`, then `pod_sample`, `container_sample`, `latency_sample`, `step_sample`,
        `progress_sample`. A failure is a `scrape` row and ends the run. What was yielded before it
        is complete, and the next run continues from there.
        """
        self.failure = None
        if not self._is_begun:
            self.client.queries = 0
        self._is_begun = False
        whole = self._settled(window)
        if whole is None:
            return
        try:
            yield from self._all(whole)
        except FallowError as error:
            self.failure = error
            now = self._clock()
            row = build_scrape_row(
                SOURCE,
                self.client.name,
                cluster=self._cluster,
                start=_drop_zone(now),
                end=_drop_zone(now),
                samples=0,
                error=format_failure(error),
            )
            yield from build_batches("scrape", [row])

    def list_parts(self, window: Window) -> "list[TelemetryPart]":
        """Return the chunks of a window's telemetry that are not read yet, in time order.

        Raises:
            SourceError: the server does not answer, or it has no GPU series.
        """
        self.client.queries, self._is_begun = 0, True
        whole = self._settled(window)
        return self._list_parts(self._telemetry.present(whole), whole) if whole else []

    def read_part(self, part: "TelemetryPart") -> "PartAnswer":
        """Read a chunk in a process of its own; `finish_part` in the driver completes it.

        Raises:
            SourceError: the server does not answer.
        """
        began, self.client.queries = time.perf_counter(), 0
        with closing(self._fetch_all([part])) as matrices:
            chunk = self._telemetry.chunk(part.window, matrices)
        batches = tuple(self._telemetry.batches(chunk))
        seconds = time.perf_counter() - began
        return PartAnswer(batches, chunk.describe(), seconds, self.client.queries)

    def finish_part(self, part: "TelemetryPart", answer: "PartAnswer") -> Iterator[Batch]:
        """Yield the rows of a chunk that was read elsewhere, its scrapes, gaps and cursor.

        Chunks are finished in time order: a gap is known by the samples before it.
        """
        self.client.queries += answer.queries
        yield from answer.batches
        yield from self._describe(part, answer.chunk, answer.seconds)
        yield from self._mark(part.piece, part.window.end)

    def _list_parts(
        self, groups: Mapping[str, Sequence[str]], window: Window
    ) -> "list[TelemetryPart]":
        self._check_clusters(groups, window)
        density = self._density(groups, window)
        step = self._step(density)
        is_large = density * window.seconds >= LEAST_REMOTE
        return [
            TelemetryPart(chunk, piece, groups, is_large)
            for piece in self._pieces(window, _TELEMETRY)
            for chunk in piece.chunks(step)
        ]

    def _settled(self, window: Window) -> Window | None:
        start = window.start.replace(microsecond=0)
        end = min(window.end, self._clock() - SETTLE).replace(microsecond=0)
        if window.end > end >= start - SETTLE:
            # Passes may be closer together than data need to settle: then each reads what has
            # settled since the last one, which its cursor knows.
            start = min(start, end - SETTLE)
        return Window(start, end) if end > start else None

    def _all(self, window: Window) -> Iterator[Batch]:
        groups = self._telemetry.present(window)
        parts = self._list_parts(groups, window)
        with closing(self._fetch_all(parts)) as matrices:
            for chunk in parts:
                yield from self._chunk(chunk, itertools.islice(matrices, len(chunk.groups)))
                yield from self._mark(chunk.piece, chunk.window.end)
        metric_names_present = list_metric_names(self.client, window)
        if "kube_pod_info" in metric_names_present or "kube_node_info" in metric_names_present:
            yield from self._inventory(
                window, metric_names_present, self._telemetry.list_signal_names(groups)
            )
        for part, grid_query in self._gridded.items():
            wanted = grid_query.wanted(metric_names_present)
            if wanted:
                held_by = self._telemetry.list_signal_names(groups)
                yield from self._by_grid(window, part, grid_query, wanted, held_by)

    def _pieces(self, window: Window, part: str) -> list[Piece]:
        settled_until, prefix = self._clock() - YOUNG, self.prefix(part)
        window = cursors.join_cursor(window, prefix, self._cursors, within=BEFORE, overlap=OVERLAP)
        return cursors.list_pieces(
            window, prefix, self._cursors, overlap=OVERLAP, settled_until=settled_until
        )

    def _check_clusters(self, groups: Mapping[str, Sequence[str]], window: Window) -> None:
        """Raise UsageError where the GPU series of a window's end are of several clusters."""
        if self._is_of_one_cluster:
            return
        names = self._telemetry.list_signal_names(groups)
        span = f"{round(min(window.seconds, 3600))}s"
        series = f"last_over_time({build_selector(names, self._settings.selector)}[{span}])"
        labels = ", ".join(list_cluster_labels())
        counted = self._query(f"count by ({labels}) ({series})", window.end)
        if error := find_mixture(label_set for label_set, _ in counted):
            raise error
        self._is_of_one_cluster = True

    def _density(self, groups: Mapping[str, Sequence[str]], window: Window) -> float:
        """Return how many values a second has; decide whether the server thins them."""
        density = self._telemetry.density(groups, window)
        if self._on_grid:
            whole = self._telemetry.density(groups, window, timedelta(seconds=1))
            if density <= whole / 2:  # else scrapes are rare: their own timestamps are better
                self.thinned_values = round(whole * window.seconds)
                self._telemetry.thin(self._settings.step)
        return density

    def _step(self, density: float) -> timedelta:
        """Return the longest chunk whose values fit into memory."""
        longest = self._settings.chunk
        if density * longest.total_seconds() <= self._max_samples:
            return longest
        fitting = (
            s
            for s in CHUNK_SPANS
            if s < longest and density * s.total_seconds() <= self._max_samples
        )
        return next(fitting, LEAST)

    def _chunk(self, part: "TelemetryPart", matrices: Iterator[Matrix]) -> Iterator[Batch]:
        began = time.perf_counter()
        self._learn_silences(part)
        chunk = self._telemetry.chunk(part.window, matrices)
        yield from self._telemetry.batches(chunk)
        yield from self._describe(part, chunk, time.perf_counter() - began)

    def _describe(
        self, part: "TelemetryPart", chunk: TelemetryChunk, seconds: float
    ) -> Iterator[Batch]:
        """Yield the scrape of a chunk and the gaps of its nodes."""
        window, silences = part.window, self._learn_silences(part)
        seen = build_scrape_row(
            SOURCE,
            self.client.name,
            cluster=self._cluster,
            start=_drop_zone(window.start),
            end=_drop_zone(window.end),
            samples=chunk.samples,
            rejected=chunk.rejected,
            clipped=chunk.clipped,
        )
        seen["seconds"] = seconds
        rows = [seen, *silences.rows(chunk)]
        self._silences = (window.end, silences)
        yield from build_batches("scrape", rows)

    def _learn_silences(self, part: "TelemetryPart") -> Silences:
        """Return which nodes had samples before a chunk; without a chunk there, ask the server."""
        start = part.window.start
        if self._silences is None or self._silences[0] != start:
            before = self._telemetry.before(part.groups, Window(start - MEMORY, start))
            self._silences = start, Silences(self._cluster, *before)
        return self._silences[1]

    def _fetch_all(self, parts: "Sequence[TelemetryPart]") -> Generator[Matrix]:
        """Yield each metric of each chunk; the next ones are read meanwhile, one at a time.

        So a server is asked for the next chunk while the rows of this one are laid out.
        """
        if any(part.is_large for part in parts) and self._remote is None:
            limit = self._settings.body_size_limit
            self._remote = RemoteReader(self.client, body_size_limit=limit)
            self._telemetry.read_remotely(self._remote)
        with ThreadPoolExecutor(1, "prometheus") as pool:
            waiting: list[Future[Matrix]] = []
            try:
                for part in parts:
                    for names_found in part.groups.values():
                        waiting.append(pool.submit(self._telemetry.fetch, names_found, part.window))
                        if len(waiting) > MOST_AHEAD:
                            yield waiting.pop(0).result()
                for last in waiting:
                    yield last.result()
            finally:
                pool.shutdown(cancel_futures=True)

    def _inventory(
        self, window: Window, metric_names_present: Sequence[str], held_by: Sequence[str]
    ) -> Iterator[Batch]:
        for piece in self._pieces(window, _INVENTORY):
            if piece.source in self._cursors and piece.window.end - piece.window.start < (
                INVENTORY_EVERY + OVERLAP
            ):
                continue
            for chunk in piece.chunks(self._settings.chunk):
                state = self._state(metric_names_present, chunk)
                end = chunk.end
                nodes = list(kube_state.build_node_rows(state, cluster=self._cluster, now=end))
                rejections: list[Rejection] = []
                former = self._list_former_nodes(state, metric_names_present, chunk)
                yield from build_batches("node", [*former, *nodes], rejections)
                address_pairs = kube_state.list_addresses(state)
                yield from build_batches(
                    "address", address_rows(address_pairs, cluster=self._cluster, now=end), []
                )
                rows = kube_state.build_pod_rows(
                    state,
                    cluster=self._cluster,
                    now=end,
                    team_labels=self._teams,
                    holder_pods=self._holders(held_by, chunk),
                    parts={n["node"]: n.get(PART, Fraction(1)) for n in nodes},
                )
                yield from build_batches("pod", rows, rejections)
                if rejections:
                    yield build_batch(
                        rejections, cluster=self._cluster, source="prometheus", at=end
                    )
                yield from self._mark(piece, chunk.end)

    def _list_former_nodes(
        self, state: kube_state.KubeState, metric_names_present: Sequence[str], window: Window
    ) -> Iterator[dict[str, Any]]:
        """Yield the nodes that changed in a window just before and after each change."""
        names: dict[datetime, set[str]] = {}
        for name, times in state.changes.items():
            for at in times:
                names.setdefault(at, set()).add(name)
        metrics = [metric for metric in metric_names_present if metric.startswith("kube_node_")]
        for at, changed in sorted(names.items())[-MOST_CHANGES:]:
            soon = min(at + newest.LOOKBACK, window.end)
            for start, end in ((window.start, at), (at, soon)):
                if start < end:
                    then = self._state(metrics, Window(start, end))
                    rows = kube_state.build_node_rows(then, cluster=self._cluster, now=end)
                    yield from (row for row in rows if row["node"] in changed)

    def _holders(self, held_by: Sequence[str], window: Window) -> frozenset[tuple[str, str]]:
        holder_query = build_holders_query(
            held_by, self._settings.selector, f"{round(window.seconds)}s"
        )
        holder_rows = self._query(holder_query, window.end)
        return frozenset((w.get("namespace", ""), w.get("pod", "")) for w, _ in holder_rows)

    def _state(self, metric_names_present: Sequence[str], window: Window) -> kube_state.KubeState:
        """Query the last values of kube-state-metrics in a window, also of deleted objects."""
        metrics_present = [
            m for m in kube_state.read_inventory() if m["metric"] in set(metric_names_present)
        ]
        series = {
            metric["metric"]: newest.query_rows(
                self._query_span,
                build_selector([metric["metric"]], self._settings.selector),
                f" == {metric['only']}" if metric["only"] else "",
                window,
            )
            for metric in metrics_present
        }
        pods = self._lives("kube_pod_info", ("namespace", "pod", "uid"), window)
        nodes = self._lives("kube_node_info", ("node",), window)
        identified = pod_identity.identify(
            series,
            {(key[0], key[1], key[2]): life for key, life in pods.items()},
            cluster=self._cluster,
            recreated=lambda: self._recreated(window),
            fetch=lambda names, which: self._raw(names, which, window),
            only={m["metric"]: float(m["only"]) for m in metrics_present if m["only"]},
        )
        by_node = {key[0]: life for key, life in nodes.items()}
        current, past = newest.split_past(identified.series, window.end)
        phases = current.get("kube_pod_status_phase", ())
        running: dict[tuple[str, ...], tuple[datetime, datetime]] = {}
        if any(label_set.get("phase") in ENDED for label_set, _ in phases):
            running = self._lives(
                "kube_pod_status_phase",
                ("namespace", "pod", "uid"),
                window,
                matchers='phase="Running"',
                only=" == 1",
            )
        changes = kube_state.find_changes(series)
        return kube_state.KubeState(current, identified.lifetimes, by_node, running, past, changes)

    def _recreated(self, window: Window) -> list[pod_identity.Name]:
        """Return the names under which a pod was created again in a window."""
        selected = build_selector([pod_identity.CREATED], self._settings.selector)
        by = "namespace, pod, exported_namespace, exported_pod"
        first, last = (
            f"{side} by ({by}) ({side}_over_time({selected}[{round(window.seconds)}s]))"
            for side in ("min", "max")
        )
        return [pod_identity.name_of(w) for w, _ in self._query(f"{last} > {first}", window.end)]

    def _raw(self, names: Sequence[str], which: str, window: Window) -> Matrix:
        matchers = ", ".join(part for part in (self._settings.selector, which) if part)
        return read_samples(self.client, build_selector(names, matchers), window)

    def _lives(
        self,
        metric: str,
        labels: Sequence[str],
        window: Window,
        *,
        matchers: str = "",
        only: str = "",
    ) -> dict[tuple[str, ...], tuple[datetime, datetime]]:
        """Return each series' start and end in a window, to the minute (or 1/360 of the window)."""
        selector = ", ".join(filter(None, (self._settings.selector, matchers)))
        selected = f"timestamp({build_selector([metric], selector)}{only})"
        interval_s = max(60, round(window.seconds / 360))
        span = f"[{round(window.seconds)}s:{interval_s}s]"
        first, last = (
            self._query(f"{side}_over_time({selected}{span})", window.end)
            for side in ("min", "max")
        )
        start, end = window.start.timestamp(), window.end.timestamp()
        return _find_lives([(w, min(max(v, start), end)) for w, v in (*first, *last)], labels)

    def _query_span(self, expression: str, window: Window) -> newest.Rows:
        """Return what an expression has of a window, whose length replaces its `$span`."""
        return self._query(expression.replace("$span", f"{round(window.seconds)}s"), window.end)

    def _query(self, expression: str, at: datetime) -> newest.Rows:
        return decode_vector(self.client.query(expression, at))

    def _by_grid(
        self,
        window: Window,
        part: str,
        grid_query: Usage | Latencies | Steps | ProgressQueries,
        wanted: Sequence[Any],
        held_by: Sequence[str],
    ) -> Iterator[Batch]:
        """Yield a part whose rows are valid for whole stretches of the clock's grid."""
        interval_s = grid_query.every
        # The pass before this one left out the newest data, and with them the end of a stretch.
        inside = find_whole_steps(Window(window.start - SETTLE, window.end), interval_s)
        step = max(self._settings.chunk // interval_s * interval_s, interval_s)
        for piece in self._pieces(inside, part) if inside else ():
            for chunk in piece.chunks(step):
                span = find_whole_steps(chunk, interval_s)
                batch = grid_query.batch(wanted, held_by, span) if span else None
                if batch is not None:
                    yield batch
                if span is not None:
                    yield from self._list_contradicted(grid_query, span.end)
                    yield from self._mark(piece, span.end)

    def _list_contradicted(self, grid_query: object, at: datetime) -> Iterator[Batch]:
        rejections = isinstance(grid_query, ProgressQueries) and grid_query.take_rejections()
        if rejections:
            yield build_batch(rejections, cluster=self._cluster, source="prometheus", at=at)

    def _mark(self, piece: Piece, until: datetime) -> Iterator[Batch]:
        """Yield a cursor; it counts for the next run once its reader comes back for more.

        A reader that could not store the chunk does not come back: the next run reads it again.
        """
        if self.client.ahead < -SKEW:
            # Its clock is behind: what it will store of this time is not there yet.
            until = min(until, self._clock() + self.client.ahead - SETTLE)
        # A clock that is set back during a pass would leave a cursor in the future.
        until = min(until, self._clock())
        until = max(until, self._cursors.get(piece.source, until))
        row: dict[str, Any] = {"source": piece.source, "done_until": _drop_zone(until)}
        yield from build_batches("cursor", [row])
        self._cursors[piece.source] = until


def _find_lives(
    edges: newest.Rows, labels: Sequence[str]
) -> dict[tuple[str, ...], tuple[datetime, datetime]]:
    """Join the first and last timestamps (unix seconds) of the same series."""
    edges_found: dict[tuple[str, ...], list[float]] = {}
    for label_sets, value in edges:
        key = newest.build_key(label_sets, labels)
        edges_found.setdefault(key, []).append(value)
    return {
        key: (datetime.fromtimestamp(min(seconds), UTC), datetime.fromtimestamp(max(seconds), UTC))
        for key, seconds in edges_found.items()
    }


def _drop_zone(timestamp: datetime) -> datetime:
    return timestamp.astimezone(UTC).replace(tzinfo=None)


def _add_zone(timestamp: datetime) -> datetime:
    return timestamp.replace(tzinfo=UTC) if timestamp.tzinfo is None else timestamp.astimezone(UTC)
