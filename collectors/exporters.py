"""Scrape exporters directly: hundreds of nodes in parallel, each failure a row of `scrape`."""

import asyncio
import importlib
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import aiohttp
import msgspec
import numpy as np
from yarl import URL

from collectors.http_fetch import OK, Fetch, fetch, open_session
from collectors.progress import Pod, read_progress, read_progress_metrics
from collectors.reader import Reader, ScrapeLimits, TargetScrape, find_excess_samples
from fallow.errors import UsageError
from fallow.rejections import Rejection, build_batch
from fallow.settings.collectors import ExporterSettings
from fallow.tables import Batch
from fallow.window import Window

SOURCE = "exporters"
TRAINERS = "trainers"
"""The jobs' own exporters, which end with their jobs: their silence is no fault of the fleet's."""
TRAINER_BODY = 4 << 20
"""Bytes of a trainer's answer at most: many jobs have one, and each is its user's."""


def _get_utc_now() -> datetime:
    return datetime.now(UTC)


class _Target(msgspec.Struct, frozen=True):
    name: str
    url: URL
    pod: Pod | None = None
    """Of a trainer, which reports the progress of jobs: its pod, or a pattern of its pods."""


class _Outcome(msgspec.Struct):
    target: str
    seconds: float
    error: str | None
    scrape: TargetScrape | None
    collector: str = SOURCE
    progress: dict[tuple[Pod, str], float] = msgspec.field(default_factory=dict)
    others: set[Pod] = msgspec.field(default_factory=set)
    """Pods that a trainer names and may not speak of."""


class ExporterCollector:
    """Scrape every target once per `collect` and return rows.

    The collector keeps a template per target between scrapes, so one instance should exist as long
    as the service runs. Two threads must not use it at the same time.
    """

    def __init__(
        self,
        settings: ExporterSettings,
        cluster: str = "default",
        clock: Callable[[], datetime] = _get_utc_now,
        *,
        annotated: Callable[[], Collection[str]] = tuple,
    ) -> None:
        """Refuse targets that are not http or https addresses.

        `annotated`: metrics that pods name as their progress.

        Raises:
            UsageError: a target's address cannot be scraped.
        """
        self._settings = settings
        self._cluster = cluster
        self._clock = clock
        self._max_body = int(settings.body_size_limit)
        self._annotated = annotated
        targets = [
            *(_parse_target(text) for text in settings.targets),
            *(_build_trainer(text) for text in settings.trainers),
        ]
        self._targets = list({target.name: target for target in targets}.values())
        self._limits = ScrapeLimits(
            sample_limit=settings.sample_limit,
            label_limit=settings.label_limit,
            label_value_length_limit=settings.label_value_length_limit,
        )
        self._reader = Reader(self._limits)
        self._headers = {
            False: _build_headers(settings.bearer_token.get_secret_value()),
            True: _build_headers(settings.trainer_token.get_secret_value()),
        }
        """By whether a target trains: jobs belong to users, who must not get the fleet's token."""

    def collect(self, window: Window) -> Iterator[Batch]:  # noqa: ARG002 (a scrape is always now)
        """Yield a scrape of every target: `sample`, `holding`, `progress_sample`, `scrape`.

        All rows of a scrape have the time at which it began (in milliseconds), except lines that
        carry a timestamp of their own.
        """
        started = self._clock().astimezone(UTC).replace(tzinfo=None)
        ts = np.datetime64(started, "ms").astype("datetime64[us]")
        interval = self._settings.interval.total_seconds()
        with asyncio.Runner(loop_factory=_choose_loop()) as runner:
            outcomes = runner.run(self._fetch_all())
        reading = self._reader.finish(ts, cluster=self._cluster, interval_s=interval, source=SOURCE)
        yield from reading.assembled.batches
        yield from _read_progress(outcomes, ts, interval, self._cluster)
        if refused := [
            _refuse(outcome.target, *pod) for outcome in outcomes for pod in outcome.others
        ]:
            yield build_batch(refused, cluster=self._cluster, source=SOURCE, at=self._clock())
        if outcomes:
            yield _build_scrapes(outcomes, ts, interval, self._cluster)

    async def _fetch_all(self) -> list[_Outcome]:
        settings = self._settings
        outcomes: list[_Outcome] = []
        waiting = iter(self._targets)
        names = frozenset(
            (*read_progress_metrics(), *settings.progress_metrics, *self._annotated())
        )
        async with open_session(settings.timeout.total_seconds()) as session:

            async def work() -> None:
                # Each worker takes the next target, so that a slow target does not delay the
                # others.
                for target in waiting:
                    outcome = await self._scrape(session, target, names)
                    outcomes.append(outcome)

            workers = min(settings.concurrency, len(self._targets))
            await asyncio.gather(*(work() for _ in range(workers)))
        return outcomes

    async def _scrape(
        self, session: aiohttp.ClientSession, target: _Target, names: frozenset[str]
    ) -> _Outcome:
        began = time.perf_counter()
        trains = target.pod is not None
        limit = min(self._max_body, TRAINER_BODY) if trains else self._max_body
        answer = await fetch(session, target.url, self._headers[trains], limit=limit)
        seconds, body, error = time.perf_counter() - began, answer.body, _find_failure(answer)
        if target.pod is not None:
            excess = find_excess_samples(body, self._limits)
            progress, others = read_progress(b"" if excess else body, names, target.pod)
            progress_scrape = TargetScrape(target.name, values=len(progress))
            error = error or (f"over exporters.{excess}" if excess else None)
            error = error or (None if progress else _MUTE)
            return _Outcome(
                target.name, seconds, error, progress_scrape, TRAINERS, progress, others
            )
        scrape: TargetScrape | None = None
        if body:
            instance = target.url.authority.rpartition("@")[2]
            scrape = self._reader.feed(target.name, body, {"instance": instance})
            error = error or _find_complaint(scrape)
        return _Outcome(target.name, seconds, error, scrape)


def _refuse(target: str, namespace: str, pod: str) -> Rejection:
    reason = f"{target} names it: exporters.trainers lets it speak of other pods"
    return Rejection("progress_sample", namespace, pod, "pod", reason)


_MUTE = "it says no progress: name its metric in exporters.progress_metrics, or on the pod"


def _find_complaint(scrape: TargetScrape) -> str | None:
    if scrape.excess:
        return f"over exporters.{scrape.excess}"
    if scrape.cut:
        return "the answer ends in the middle of a line"
    return None


def _find_failure(answer: Fetch) -> str | None:
    """Return why an answer is none, with what to do about it."""
    if answer.error is None:
        return None if answer.body else "the answer is empty: does the exporter see a GPU?"
    if answer.too_large:
        return f"over exporters.body_size_limit: {answer.error}"
    if answer.status in {0, OK}:
        is_late = answer.error.startswith("no complete answer")
        return answer.error + " (exporters.timeout)" * is_late
    return answer.error + _ADVICE.get(answer.status, "")


_REDIRECTED = ": it redirects, and no redirect is followed: name the address itself"
_ADVICE = {
    **dict.fromkeys((401, 403), ": check exporters.bearer_token and trainer_token"),
    404: ": the path is usually /metrics",
    **dict.fromkeys((301, 302, 303, 307, 308), _REDIRECTED),
}


def _build_scrapes(
    outcomes: Iterable[_Outcome], ts: np.datetime64, interval: float, cluster: str
) -> Batch:
    rows = sorted(outcomes, key=lambda outcome: outcome.target)
    scrapes = [outcome.scrape or TargetScrape(outcome.target) for outcome in rows]
    errors = [o.error or _check_nothing(scrape) for o, scrape in zip(rows, scrapes, strict=True)]
    timestamp = ts.astype(datetime)
    return Batch.of(
        "scrape",
        {
            "cluster": [cluster] * len(rows),
            "ts": [timestamp] * len(rows),
            "collector": [outcome.collector for outcome in rows],
            "target": [outcome.target for outcome in rows],
            "until": [timestamp + timedelta(seconds=interval)] * len(rows),
            "up": [error is None for error in errors],
            "seconds": [outcome.seconds for outcome in rows],
            "samples": [scrape.values - scrape.refused for scrape in scrapes],
            "rejected": [scrape.rejected for scrape in scrapes],
            "clipped": [scrape.clipped for scrape in scrapes],
            "error": errors,
        },
    )


def _read_progress(
    outcomes: Iterable[_Outcome], ts: np.datetime64, interval: float, cluster: str
) -> Iterator[Batch]:
    # Two targets may report one pod: the target that is listed last wins.
    rows = {key: value for o in outcomes for key, value in o.progress.items()}
    if not rows:
        return
    keys = sorted(rows)
    yield Batch.of(
        "progress_sample",
        {
            "cluster": [cluster] * len(keys),
            "ts": [ts.astype(datetime)] * len(keys),
            "namespace": [namespace for (namespace, _), _ in keys],
            "pod": [pod for (_, pod), _ in keys],
            "metric": [metric for _, metric in keys],
            "interval_s": [interval] * len(keys),
            "value": [rows[key] for key in keys],
        },
    )


def _check_nothing(scrape: TargetScrape) -> str | None:
    """Explain a complete response without any usable value."""
    if scrape.values:
        return None
    if scrape.unknown:
        return f"none of its {scrape.unknown} series is a GPU metric that Fallow knows"
    return f"the answer holds no metrics ({scrape.rejected} lines are not Prometheus text)"


def _build_headers(token: str) -> dict[str, str]:
    accept = {"Accept": "text/plain;version=0.0.4;q=1,*/*;q=0.1"}
    return accept | ({"Authorization": f"Bearer {token}"} if token else {})


def _parse_target(text: str) -> _Target:
    url = _parse_url(text)
    return _Target(_name(url), url)


def _build_trainer(text: str) -> _Target:
    """Read `namespace/pod=http://host:port/metrics`."""
    where, _, address = text.partition("=")
    namespace, _, pod = where.partition("/")
    if "://" in where or not (namespace and pod):
        raise UsageError(
            f"exporters.trainers: {text!r} is not namespace/pod=http://host:port/metrics",
            hint="for instance ml/train-0=http://train-0.ml.svc:9000/metrics; ml/*= of many pods",
        )
    url = _parse_url(address, "trainers")
    return _Target(_name(url), url, pod=(namespace, pod))


def _parse_url(text: str, setting: str = "targets") -> URL:
    try:
        url = URL(text)
        usable = url.scheme in {"http", "https"} and bool(url.host)
    except ValueError:
        usable = False
        url = URL()
    if not usable:
        raise UsageError(
            f"exporters.{setting}: {text!r} is not an http:// or https:// address",
            hint="a target looks like http://gpu-node-1:9400/metrics",
        )
    return url if url.path not in {"", "/"} else url.with_path("/metrics")


def _name(url: URL) -> str:
    """Return the target without credentials, for logs and tables."""
    return str(url.with_user(None).with_password(None)) if url.user else str(url)


def _choose_loop() -> Callable[[], Any] | None:
    try:
        uvloop = importlib.import_module("uvloop")
    except ImportError:
        return None
    factory: Callable[[], Any] = uvloop.new_event_loop
    return factory
