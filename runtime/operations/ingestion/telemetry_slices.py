"""Read a Prometheus's history with workers; this process stores what they read, in time order."""

import logging
import pickle
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from datetime import datetime
from functools import lru_cache, partial
from itertools import zip_longest
from typing import TYPE_CHECKING

import msgspec

from collectors.prometheus.collector import PartAnswer, PrometheusCollector, TelemetryPart
from fallow.errors import FallowError, SourceError
from fallow.settings import Settings
from fallow.tables import Batch
from runtime.operations.ingestion.collection import build_prometheus_collector
from warehouse.runners.choice import open_runner
from warehouse.runners.slices import Runner, StageError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator
    from contextlib import AbstractContextManager

    from fallow.window import Window

log = logging.getLogger("fallow.import")

SLICE_SAMPLES = 6_000_000
"""Values of one slice: a worker needs less than 1.5 GB for it, and this process 0.2 GB."""


class PartFailure(msgspec.Struct, frozen=True):
    """A chunk that could not be read, and why."""

    message: str


def read_slices(
    settings: Settings,
    collector: PrometheusCollector,
    window: "Window",
    now: datetime,
    runner: "Callable[[Settings], AbstractContextManager[Runner]]" = open_runner,
) -> "Iterator[Batch]":
    """Yield the rows of a window's telemetry, the same in the same order as the collector's own.

    While this process stores some slices, workers read the next ones. The rows end before a slice
    that cannot be read: the collector itself goes on from there, and says what it meets.
    """
    try:
        parts = collector.list_parts(window)
    except SourceError:  # the collector meets it too, and records it
        return
    if len(parts) <= 1:
        return
    with (
        runner(settings) as workers,
        closing(_read_groups(workers, settings, now, parts)) as groups,
    ):
        for group in groups:
            for part, answer in group:
                if isinstance(answer, PartFailure):
                    log.warning("a slice was not read", extra={"why": answer.message})
                    return
                yield from collector.finish_part(part, answer)
            if collector.client.queries >= settings.prometheus.query_budget:
                return


def _read_groups(
    workers: Runner, settings: Settings, now: datetime, parts: Sequence[TelemetryPart]
) -> "Generator[list[tuple[TelemetryPart, PartAnswer | PartFailure]]]":
    """Yield as many parts as there are workers, with their answers, one group read ahead."""

    def read(group: Sequence[TelemetryPart]) -> list[PartAnswer | PartFailure]:
        try:
            return workers.map(partial(read_slice, settings, now), group)
        except StageError as error:  # its worker was killed each time
            return [PartFailure(str(error))] * len(group)

    size = workers.concurrency
    groups = [parts[first : first + size] for first in range(0, len(parts), size)]
    with ThreadPoolExecutor(1, "slices") as ahead:
        started: Future[list[PartAnswer | PartFailure]] = ahead.submit(read, groups[0])
        for group, after in zip_longest(groups, groups[1:]):
            answers = started.result
            if after is not None:
                started = ahead.submit(read, after)
            yield list(zip(group, answers(), strict=True))


def read_slice(settings: Settings, now: datetime, part: TelemetryPart) -> PartAnswer | PartFailure:
    """Read one chunk in a worker."""
    try:
        return _get_collector(pickle.dumps(settings), now).read_part(part)
    except FallowError as error:
        return PartFailure(str(error))


@lru_cache(maxsize=1)
def _get_collector(settings_pickled: bytes, now: datetime) -> PrometheusCollector:
    """Return this worker's collector: it knows the labels that it has decoded."""
    settings: Settings = pickle.loads(settings_pickled)  # noqa: S301  (written by `read_slice`)
    return build_prometheus_collector(settings, clock=lambda: now)
