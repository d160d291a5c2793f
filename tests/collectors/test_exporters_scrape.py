"""Many exporters at once over real HTTP: what answers is read, what fails is a scrape row."""

import asyncio
import gzip
import threading
import tracemalloc
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from types import TracebackType
from typing import Any, Self

import msgspec
import pytest
from aiohttp import web

from collectors.exporters import ExporterCollector
from fallow.errors import UsageError
from fallow.protocols import Collector
from fallow.settings.collectors import ExporterSettings
from fallow.tables import Batch
from fallow.window import Window

WINDOW = Window(datetime(2026, 11, 20, tzinfo=UTC), datetime(2026, 11, 21, tzinfo=UTC))


def text(node: str, gpus: int = 2, value: object = 50) -> str:
    lines = ["# TYPE DCGM_FI_DEV_GPU_UTIL gauge"]
    lines += [
        f'DCGM_FI_DEV_GPU_UTIL{{gpu="{i}",UUID="GPU-{node}-{i}",Hostname="{node}"}} {value}'
        for i in range(gpus)
    ]
    return "\n".join(lines) + "\n"


class Exporters:
    """A server whose paths answer in every way that exporters do."""

    def __init__(self) -> None:
        self.value = 50
        self.headers: dict[str, str] = {}
        self.bomb = b"".join([gzip.compress(bytes(1 << 20))] * 256)
        self._started = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._started.wait(20)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(20)

    def url(self, path: str, scheme: str = "http") -> str:
        return f"{scheme}://127.0.0.1:{self._port}{path}"

    async def _serve(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        app = web.Application()
        app.router.add_get("/{kind}", self._answer)
        app.router.add_get("/node/{name}", self._node)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        self._port = runner.addresses[0][1]
        self._started.set()
        await self._stop.wait()
        await runner.cleanup()

    async def _node(self, request: web.Request) -> web.Response:
        return web.Response(text=text(request.match_info["name"], value=self.value))

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        self.headers = dict(request.headers)
        kind = request.match_info["kind"]
        if kind == "slow":
            await self._stop.wait()
        if kind == "half":
            return await self._half(request)
        bodies: dict[str, Any] = {
            "metrics": text("plain"),
            "empty": "",
            "garbage": "<html>\n<body>bad gateway</body>\n</html>\n",
            "foreign": "go_goroutines 5\n",
            "cut": text("cut")[:-2],
            "odd": text("odd", 1, "NaN") + text("odd2", 1, 2147483632) + "what is this\n",
            "large": text("large", 500),
            "series": text("series", 4),
            "label": text("label").replace("GPU-label", "GPU-" + "x" * 5000),
        }
        if kind == "bomb":
            return web.Response(body=self.bomb, headers={"Content-Encoding": "gzip"})
        if kind == "gzip":
            packed = gzip.compress(text("zipped").encode())
            return web.Response(body=packed, headers={"Content-Encoding": "gzip"})
        if kind in bodies:
            return web.Response(text=bodies[kind])
        return web.Response(status=int(kind), text="no")

    async def _half(self, request: web.Request) -> web.StreamResponse:
        body = text("half").encode()
        response = web.StreamResponse(headers={"Content-Length": str(len(body))})
        await response.prepare(request)
        await response.write(body[:-30])
        assert request.transport is not None
        request.transport.close()
        return response


@pytest.fixture(scope="module")
def server() -> Iterator[Exporters]:
    with Exporters() as exporters:
        yield exporters


Make = Callable[..., ExporterCollector]


@pytest.fixture
def collector(now: datetime) -> Make:
    def make(*targets: str, **settings: object) -> ExporterCollector:
        section = ExporterSettings.model_validate({"targets": list(targets), **settings})
        return ExporterCollector(section, "test", lambda: now)

    return make


def scrapes(batches: list[Batch]) -> list[dict[str, Any]]:
    return [r for b in batches if b.table == "scrape" for r in b.rows.to_pylist()]


def samples(batches: list[Batch]) -> list[dict[str, Any]]:
    return [r for b in batches if b.table == "sample" for r in b.rows.to_pylist()]


def test_a_fleet_in_one_look(server: Exporters, collector: Make, now: datetime) -> None:
    targets = [server.url(f"/node/n{i}") for i in range(150)]
    mine = collector(*targets, concurrency=32, interval="15s")
    assert isinstance(mine, Collector)
    first = list(mine.collect(WINDOW))
    server.value = 80
    second = list(mine.collect(WINDOW))
    assert [b.table for b in first] == ["sample", "scrape"]
    assert len(samples(first)) == 300
    assert {r["gpu_util_pct"] for r in samples(first)} == {50.0}
    assert {r["gpu_util_pct"] for r in samples(second)} == {80.0}
    instant = now.replace(tzinfo=None)
    assert {r["ts"] for r in samples(first)} == {instant}
    assert {(r["cluster"], r["source"], r["interval_s"]) for r in samples(first)} == {
        ("test", "exporters", 15.0)
    }
    sample_rows = scrapes(second)
    assert [r["target"] for r in sample_rows] == sorted(targets)
    assert all(r["up"] and r["error"] is None and r["samples"] == 2 for r in sample_rows)
    assert {(r["ts"], r["until"]) for r in sample_rows} == {
        (instant, instant + timedelta(seconds=15))
    }
    assert all(r["seconds"] > 0 for r in sample_rows)


FAILURES = [
    ("/401", 0, 0, "HTTP 401 Unauthorized: check exporters.bearer_token"),
    ("/404", 0, 0, "HTTP 404 Not Found: the path is usually /metrics"),
    ("/503", 0, 0, "HTTP 503 Service Unavailable"),
    ("/empty", 0, 0, "the answer is empty: does the exporter see a GPU?"),
    ("/garbage", 0, 3, "the answer holds no metrics (3 lines are not Prometheus text)"),
    ("/foreign", 0, 0, "none of its 1 series is a GPU metric that Fallow knows"),
    ("/cut", 1, 1, "the answer ends in the middle of a line"),
    ("/half", 1, 1, "the answer broke off after"),
    ("/slow", 0, 0, "no complete answer within 1s (exporters.timeout)"),
    ("/large", 0, 0, "over exporters.body_size_limit: more than 20,000 bytes after decompression"),
]


@pytest.mark.parametrize("failure", FAILURES, ids=[path for path, *_ in FAILURES])
def test_failures_are_rows_and_hold_up_nobody(
    server: Exporters, collector: Make, failure: tuple[str, int, int, str]
) -> None:
    path, read, rejected, error = failure
    good, bad = server.url("/metrics"), server.url(path)
    batches = list(collector(bad, good, timeout="1s", body_size_limit=20_000).collect(WINDOW))
    sample_rows = {r["target"]: r for r in scrapes(batches)}
    assert sample_rows[good]["up"] is True
    assert sample_rows[bad]["up"] is False
    assert sample_rows[bad]["error"].startswith(error)
    assert "\n" not in sample_rows[bad]["error"]
    assert (sample_rows[bad]["samples"], sample_rows[bad]["rejected"]) == (read, rejected)
    assert len(samples(batches)) == 2 + read


LIMITS = [
    ("/series", {"sample_limit": 4}, None),
    ("/series", {"sample_limit": 3}, "over exporters.sample_limit: 4 samples, 3 are allowed"),
    ("/metrics", {"label_limit": 3}, None),
    ("/metrics", {"label_limit": 2}, "over exporters.label_limit: "),
    ("/label", {"label_value_length_limit": 0}, None),
    ("/label", {}, "over exporters.label_value_length_limit: UUID of "),
    ("/bomb", {}, "over exporters.body_size_limit: more than 67,108,864 bytes after decompression"),
]


@pytest.mark.parametrize(("path", "settings", "error"), LIMITS)
def test_a_scrape_over_a_limit_is_refused_whole(
    server: Exporters, collector: Make, path: str, settings: dict[str, int], error: str | None
) -> None:
    mine = collector(server.url(path), **settings)
    for _ in range(2):  # before and after its text is known
        tracemalloc.start()
        batches = list(mine.collect(WINDOW))
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        (row,) = scrapes(batches)
        assert (row["up"], bool(samples(batches))) == (error is None, error is None)
        assert error is None or row["error"].startswith(error), row["error"]
        assert peak < 160 << 20


def test_no_connection_no_host_no_tls(server: Exporters, collector: Make) -> None:
    targets = {
        "http://127.0.0.1:1/metrics": "no connection",
        "http://no-such-host.invalid:9400/metrics": "no such host",
        server.url("/metrics", "https"): "TLS failed",
    }
    batches = list(collector(*targets).collect(WINDOW))
    assert samples(batches) == []
    for row in scrapes(batches):
        assert row["up"] is False
        assert row["error"].startswith(targets[row["target"]])


def test_blank_values_are_counted_not_stored(server: Exporters, collector: Make) -> None:
    batches = list(collector(server.url("/odd")).collect(WINDOW))
    (sample,) = scrapes(batches)
    assert (sample["up"], sample["samples"], sample["rejected"]) == (True, 0, 3)
    assert {r["gpu_util_pct"] for r in samples(batches)} == {None}


def test_compressed_answers_and_tokens(server: Exporters, collector: Make) -> None:
    mine = collector(server.url("/gzip"), bearer_token="secret")
    assert len(samples(list(mine.collect(WINDOW)))) == 2
    assert server.headers["Authorization"] == "Bearer secret"


def test_a_target_comes_back(server: Exporters, collector: Make) -> None:
    url = server.url("/node/back")
    mine = collector(url)
    assert len(samples(list(mine.collect(WINDOW)))) == 2
    (target,) = mine._targets
    mine._targets = [msgspec.structs.replace(target, url=target.url.with_path("/503"))]
    assert scrapes(list(mine.collect(WINDOW)))[0]["up"] is False
    mine._targets = [target]
    assert len(samples(list(mine.collect(WINDOW)))) == 2


def test_credentials_in_an_address_are_not_shown(server: Exporters, collector: Make) -> None:
    address = server.url("/metrics").replace("http://", "http://user:secret@")
    (sample,) = scrapes(list(collector(address).collect(WINDOW)))
    assert sample["up"] is True
    assert "secret" not in sample["target"]


def test_one_target_named_twice_is_looked_at_once(server: Exporters, collector: Make) -> None:
    url = server.url("/metrics")
    assert len(scrapes(list(collector(url, url).collect(WINDOW)))) == 1


def test_no_targets_no_rows(collector: Make) -> None:
    assert list(collector().collect(WINDOW)) == []


@pytest.mark.parametrize("address", ["node:9400", "ftp://node/metrics", "", "http://", "/metrics"])
def test_addresses_that_cannot_be_scraped(address: str, collector: Make) -> None:
    with pytest.raises(UsageError, match="not an http:// or https:// address"):
        collector(address)


def test_a_bare_address_means_metrics(collector: Make) -> None:
    assert collector("http://node:9400")._targets[0].name == "http://node:9400/metrics"
