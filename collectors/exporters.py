"""Scrape exporters directly: hundreds of nodes in parallel, each failure a row of `scrape`."""

import asyncio
import importlib
import ssl
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import aiohttp
import msgspec
import numpy as np
from yarl import URL

from collectors.progress import Pod, read_progress, read_progress_metrics
from collectors.reader import Reader, ScrapeLimits, TargetScrape
from fallow.collector_settings import ExporterSettings
from fallow.errors import UsageError
from fallow.tables import Batch
from fallow.window import Window, format_duration

SOURCE = "exporters"
TRAINERS = "trainers"
"""The jobs' own exporters, which end with their jobs: their silence is no fault of the fleet's."""


def _get_utc_now() -> datetime:
    return datetime.now(UTC)


class _Target(msgspec.Struct, frozen=True):
    name: str
    url: URL
    trains: bool = False
    """It reports the progress of jobs, and nothing about GPUs."""
    pod: Pod | None = None
    """The pod that the exporter belongs to; None = its series name the pod."""


class _Outcome(msgspec.Struct):
    target: str
    seconds: float
    error: str | None
    scrape: TargetScrape | None
    collector: str = SOURCE
    progress: dict[tuple[Pod, str], float] = msgspec.field(default_factory=dict)


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
        self._reader = Reader(
            ScrapeLimits(
                sample_limit=settings.sample_limit,
                label_limit=settings.label_limit,
                label_value_length_limit=settings.label_value_length_limit,
            )
        )

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
        if outcomes:
            yield _build_scrapes(outcomes, ts, interval, self._cluster)

    async def _fetch_all(self) -> list[_Outcome]:
        settings = self._settings
        headers = {"Accept": "text/plain;version=0.0.4;q=1,*/*;q=0.1"}
        token = settings.bearer_token.get_secret_value()
        if token:
            headers["Authorization"] = f"Bearer {token}"
        outcomes: list[_Outcome] = []
        waiting = iter(self._targets)
        names = frozenset(
            (*read_progress_metrics(), *settings.progress_metrics, *self._annotated())
        )
        async with aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, force_close=True),
            headers=headers,
            timeout=aiohttp.ClientTimeout(total=settings.timeout.total_seconds()),
            cookie_jar=aiohttp.DummyCookieJar(),
        ) as session:

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
        body, error = await self._get(session, target.url)
        seconds = time.perf_counter() - began
        if target.trains:
            progress = read_progress(body, names, target.pod)
            progress_scrape = TargetScrape(target.name, values=len(progress))
            error = error or (None if progress else _MUTE)
            return _Outcome(target.name, seconds, error, progress_scrape, TRAINERS, progress)
        scrape: TargetScrape | None = None
        if body:
            instance = target.url.authority.rpartition("@")[2]
            scrape = self._reader.feed(target.name, body, {"instance": instance})
            error = error or _find_complaint(scrape)
        return _Outcome(target.name, seconds, error, scrape)

    async def _get(self, session: aiohttp.ClientSession, url: URL) -> tuple[bytes, str | None]:
        """Return the body and the error; both are present when the response was cut off."""
        parts: list[bytes] = []
        try:
            async with session.get(url) as response:
                if response.status != 200:  # noqa: PLR2004 (HTTP OK)
                    return b"", _format_status(response)
                await _drain(response.content, parts, self._max_body)
        except TimeoutError:
            limit = format_duration(self._settings.timeout.total_seconds())
            return b"".join(parts), f"no complete answer within {limit} (exporters.timeout)"
        except aiohttp.ClientPayloadError:
            return b"".join(parts), f"the answer broke off after {sum(map(len, parts))} bytes"
        except _TooLargeError:
            text = f"over exporters.body_size_limit: more than {self._max_body:,} bytes"
            return b"", f"{text} after decompression"
        except (aiohttp.ClientError, ssl.SSLError, OSError, ValueError) as error:
            return b"", _line(error)
        body = b"".join(parts)
        return body, None if body else "the answer is empty: does the exporter see a GPU?"


_MUTE = "it says no progress: name its metric in exporters.progress_metrics, or on the pod"


class _TooLargeError(Exception):
    """The body is larger than that of any exporter."""


async def _drain(content: aiohttp.StreamReader, into: list[bytes], limit: int) -> None:
    """Read to the end; after an error `into` keeps what was received so far."""
    read = 0
    async for part in content.iter_any():
        read += len(part)
        if read > limit:
            raise _TooLargeError
        into.append(part)


def _find_complaint(scrape: TargetScrape) -> str | None:
    if scrape.excess:
        return f"over exporters.{scrape.excess}"
    if scrape.cut:
        return "the answer ends in the middle of a line"
    return None


def _format_status(response: aiohttp.ClientResponse) -> str:
    advice = ""
    if response.status in (401, 403):
        advice = ": check exporters.bearer_token"
    elif response.status == 404:  # noqa: PLR2004 (HTTP Not Found)
        advice = ": the path is usually /metrics"
    return f"HTTP {response.status} {response.reason or ''}".rstrip() + advice


def _line(error: Exception) -> str:
    """Return an error in one line that begins with its kind."""
    kind = {
        aiohttp.ClientConnectorDNSError: "no such host",
        aiohttp.ClientConnectorCertificateError: "the TLS certificate is not trusted",
        aiohttp.ClientConnectorSSLError: "TLS failed (is it plain http?)",
        aiohttp.ClientConnectorError: "no connection",
        aiohttp.ServerDisconnectedError: "the server closed the connection",
        aiohttp.TooManyRedirects: "too many redirects",
    }
    kind_text = next((text for cls, text in kind.items() if isinstance(error, cls)), None)
    detail = " ".join(str(error).split())
    parts = [kind_text or type(error).__name__, detail]
    return ": ".join(part for part in parts if part)[:300]


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


def _parse_target(text: str) -> _Target:
    url = _parse_url(text)
    return _Target(_name(url), url)


def _build_trainer(text: str) -> _Target:
    """Read `namespace/pod=http://host:port/metrics`, or an address alone."""
    where, equals, address = text.partition("=")
    if not equals or "://" in where:
        where, address = "", text
    namespace, _, pod = where.partition("/")
    if bool(where) and not (namespace and pod):
        raise UsageError(
            f"exporters.trainers: {text!r} is not namespace/pod=http://host:port/metrics",
            hint="for instance ml/train-0=http://train-0.ml.svc:9000/metrics",
        )
    url = _parse_url(address, "trainers")
    return _Target(_name(url), url, trains=True, pod=(namespace, pod) if pod else None)


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
