"""Sources do not wait for each other, and no job that writes waits for a source."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from collectors.exporters import ExporterCollector
from collectors.prometheus.collector import PrometheusCollector
from collectors.prometheus.cursors import Piece
from fallow.errors import TemporaryError
from fallow.settings import Settings, load
from fallow.settings.collectors import ExporterSettings, PrometheusSettings
from fallow.system.daemon_threads import DaemonThreads
from fallow.tables import Batch
from fallow.window import Window
from runtime.operations.ingestion.ingest_queue import IngestQueue
from runtime.operations.ingestion.spool import Spool
from runtime.service import loop, schedule
from runtime.service.jobs import ServiceLoop
from runtime.service.metrics import SelfMetrics
from runtime.service.readiness import Readiness
from runtime.service.roles import PARTS, Lane, ServiceJob, ServiceRole
from runtime.service.schedule import ServiceThreads, run_jobs
from runtime.service.sources import SourceRead, Sources, WaitingRows, wait_for
from runtime.service.tracing import trace_nothing
from tests.servers.dripping import dripping
from tests.servers.misbehaving import Answer, misbehaving
from warehouse.lake import Warehouse
from warehouse.verification import verify_warehouse

WAIT_S = 60.0
MINUTE = timedelta(minutes=1)
NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
TEXT = b'DCGM_FI_DEV_GPU_UTIL{gpu="0",UUID="GPU-%d",modelName="NVIDIA H100",Hostname="n1"} 5\n'


@contextmanager
def reading(
    settings: Settings, collectors: dict[str, Any], *, most_rows: int = 400_000
) -> Iterator[tuple[Sources, ServiceThreads, Warehouse, SelfMetrics]]:
    threads, metrics = ServiceThreads(), SelfMetrics()
    with Warehouse.open(settings, write=True) as lake:
        sources = Sources(
            lake, collectors, metrics, readers=threads.readers, writer=threads.writer,
            stop=threading.Event(), since={}, most_rows=most_rows,
        )  # fmt: skip
        try:
            yield sources, threads, lake, metrics
        finally:
            threads.close(1.0)


def exporter(url: str) -> ExporterCollector:
    settings = ExporterSettings(targets=[f"{url}/metrics"], timeout=timedelta(minutes=10))
    return ExporterCollector(settings, "test")


def sample(at: datetime) -> Batch:
    return Batch.of(
        "sample",
        {
            "cluster": ["test"],
            "ts": [at.replace(tzinfo=None)],
            "device": ["GPU-1"],
            "interval_s": [60.0],
        },
    )


def skipped(metrics: SelfMetrics, name: str) -> float | None:
    return metrics.registry.get_sample_value("fallow_collect_skipped_total", {"collector": name})


def scrape_latencies(sources: Sources, names: set[str]) -> dict[str, float]:
    """Scrape once; return the seconds from the scheduled time until the rows of each are stored."""
    scheduled = time.monotonic()
    waiting = {r.source: r for r in sources.start(names, MINUTE, datetime.now(UTC))}
    waiting.pop("hanging", None)
    latencies: dict[str, float] = {}
    while waiting and time.monotonic() < scheduled + WAIT_S:
        for name in [name for name, read in waiting.items() if read.ended.is_set()]:
            latencies[name] = time.monotonic() - scheduled
            del waiting[name]
        time.sleep(0.001)
    return latencies


# A source that sends nothing at all hangs as one that drips does, which is the harder to notice.
@pytest.mark.parametrize("drop", [b"1\r\n#\r\n", pytest.param(b"", marks=pytest.mark.long)])
def test_nine_sources_are_stored_on_time_while_the_tenth_hangs(
    settings: Settings, drop: bytes
) -> None:
    """95 % of the scrapes of nine sources are on time.

    On time: stored within ten times what the slowest scrape needed on this machine while no source
    hung. A source that waited for the hanging one would need its deadline of ten minutes.
    """
    quiet_turns, turns = 2, 6
    with ExitStack() as stack:
        hanging = stack.enter_context(dripping(drop=drop))
        collectors = {"hanging": exporter(hanging.url)}
        for number in range(9):
            server = stack.enter_context(misbehaving())
            server.answers = [Answer(body=TEXT % number)]
            collectors[f"good-{number}"] = exporter(server.url)
        good = set(collectors) - {"hanging"}
        sources, threads, lake, metrics = stack.enter_context(reading(settings, collectors))
        quiet = [scrape_latencies(sources, good) for _ in range(quiet_turns)]
        assert all(set(scrape) == good for scrape in quiet)
        on_time_s = 10 * max(latency for scrape in quiet for latency in scrape.values())
        on_time = 0
        for _ in range(turns):
            latencies = scrape_latencies(sources, set(collectors))
            on_time += sum(latency <= on_time_s for latency in latencies.values())
            assert sources.write(lambda: "free") == "free", "the writing thread waits for nobody"
        scrapes = lake.query(
            "SELECT target, up, count(*) AS n FROM scrape GROUP BY ALL"
        ).to_pylist()
        assert "a source" in threads.close(0.0)
    assert on_time >= 0.95 * turns * len(good)
    assert len(scrapes) == len(good)
    assert all(row["up"] and row["n"] >= 0.95 * turns + quiet_turns for row in scrapes)
    assert hanging.connections == 1, "a source that hangs is not started again"
    assert skipped(metrics, "hanging") == turns - 1


class Live:
    """A source of one row a time."""

    def __init__(self) -> None:
        self.windows: list[Window] = []

    def collect(self, window: Window) -> Iterator[Batch]:
        self.windows.append(window)
        yield sample(window.end)


def test_sources_are_read_while_a_job_writes_and_a_bound_holds_what_waits(
    settings: Settings,
) -> None:
    live, job_runs, may_end = Live(), threading.Event(), threading.Event()
    with reading(settings, {"live": live}, most_rows=3) as (sources, threads, lake, metrics):

        def job() -> None:
            job_runs.set()
            may_end.wait(WAIT_S)

        threads.writer.submit(job)
        assert job_runs.wait(WAIT_S)
        reads: list[SourceRead] = []
        for turn in range(3):
            reads += sources.start({"live"}, MINUTE, NOW + turn * MINUTE)
            assert reads[-1].read.wait(WAIT_S), "its rows wait, it may be read again"
        assert not any(read.ended.is_set() for read in reads)
        reads += sources.start({"live"}, MINUTE, NOW + 3 * MINUTE)  # a fourth row has no room
        assert not reads[-1].read.wait(0.2)
        assert sources.start({"live"}, MINUTE, NOW + 4 * MINUTE) == []
        may_end.set()
        wait_for(reads, WAIT_S)
        stored = lake.query("SELECT ts FROM sample ORDER BY ts").to_pylist()
    assert [row["ts"].replace(tzinfo=UTC) for row in stored] == [NOW + n * MINUTE for n in range(4)]
    assert live.windows == [Window(NOW + (n - 1) * MINUTE, NOW + n * MINUTE) for n in range(4)]
    assert skipped(metrics, "live") == 1


def test_more_rows_than_the_bound_wait_alone() -> None:
    waiting, passed = WaitingRows(10), threading.Event()
    waiting.add(4)

    def add_more() -> None:
        waiting.add(50)
        passed.set()

    threading.Thread(target=add_more, daemon=True).start()
    assert not passed.wait(0.1)
    waiting.remove(4)
    assert passed.wait(WAIT_S)


def test_rows_that_the_writing_thread_did_not_come_to_are_stored_after_the_next_start(
    settings: Settings,
) -> None:
    threads, resume = ServiceThreads(), threading.Event()
    with (
        Warehouse.open(settings, write=True) as lake,
        Spool(settings.home / "queue", 10_000_000) as spool,
    ):
        queue = IngestQueue(lake, spool, most_rows=1_000)
        sources = Sources(
            lake, {"live": Live()}, SelfMetrics(), readers=threads.readers, writer=threads.writer,
            stop=threading.Event(), since={}, queue=queue,
        )  # fmt: skip
        threads.writer.submit(lambda: resume.wait(WAIT_S))
        (read,) = sources.start({"live"}, MINUTE, NOW)
        assert read.read.wait(WAIT_S)
        threads.close(0.0)
        sources.keep_unstored()
        assert queue.state.disk_rows == 1
        resume.set()  # the hanging thread may store them too: they are stored once
        assert queue.deliver().rows == 1
        sources.keep_unstored()
        assert queue.state.disk_rows == 0
        assert lake.query("FROM sample").num_rows == 1


def test_at_most_sixteen_small_reads_wait_before_a_job() -> None:
    waiting, passed = WaitingRows(400_000), threading.Event()
    for _ in range(16):
        waiting.add(1)

    def add_more() -> None:
        waiting.add(1)
        passed.set()

    threading.Thread(target=add_more, daemon=True).start()
    assert not passed.wait(0.1)
    waiting.remove(1)
    assert passed.wait(WAIT_S)


def test_rows_that_could_not_be_stored_are_read_again(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    live, real, failing = Live(), Warehouse.ingest, [True]

    def ingest(lake: Warehouse, batches: Any) -> Any:
        rows = list(batches)
        if failing and any(batch.table == "sample" for batch in rows):
            failing.clear()
            raise TemporaryError("the disk is full")
        return real(lake, rows)

    monkeypatch.setattr(Warehouse, "ingest", ingest)
    with reading(settings, {"live": live}) as (sources, _, lake, metrics):
        for turn in range(3):
            wait_for(sources.start({"live"}, MINUTE, NOW + turn * MINUTE), WAIT_S)
        stored = lake.query("SELECT count(*) AS n FROM sample").to_pylist()[0]["n"]
    assert [w.start for w in live.windows] == [NOW - MINUTE, NOW - MINUTE, NOW + MINUTE]
    assert stored == 2
    assert metrics.registry.get_sample_value("fallow_up", {"collector": "live"}) == 1


def test_a_chunk_of_history_that_was_not_stored_is_read_again() -> None:
    collector = PrometheusCollector(PrometheusSettings(url="http://127.0.0.1:9"), "test")
    window = Window(NOW - timedelta(hours=2), NOW)
    name = f"{collector.prefix('telemetry')} since 2026-11-20T10:00:00Z"
    piece = Piece(window, name, window.start)
    for row in collector._mark(piece, NOW):
        assert row.table == "cursor"
        break  # storing it failed: nobody asks for more
    assert collector._cursors == {}
    assert [row.table for row in collector._mark(piece, NOW)] == ["cursor"]
    assert collector._cursors == {name: NOW}


def test_writing_jobs_keep_their_period_while_a_source_hangs(settings: Settings) -> None:
    service = settings.service.model_copy(update={"collect_every": timedelta(seconds=0.5)})
    settings = settings.model_copy(update={"service": service})
    turns, stop, threads, metrics = (
        {"account": 0, "act": 0},
        threading.Event(),
        ServiceThreads(),
        SelfMetrics(),
    )

    def count(name: str) -> Callable[[], None]:
        def run() -> None:
            turns[name] += 1
            if min(turns.values()) >= 5 and len(live.windows) >= 5:
                stop.set()

        return run

    live = Live()
    with dripping() as hanging, Warehouse.open(settings, write=True) as lake:
        jobs = ServiceLoop(
            lake, settings, collectors={"hanging": exporter(hanging.url), "live": live},
            analyzers={}, metrics=metrics, clock=lambda: datetime.now(UTC), stop=stop,
            readers=threads.readers, writer=threads.writer, first_turn_s=0.5,
        ).jobs()  # fmt: skip
        jobs = [
            *(job for job in jobs if job.lane is Lane.source),
            *(
                ServiceJob(name, timedelta(seconds=0.2), count(name), ServiceRole.actor)
                for name in turns
            ),
        ]
        limit = threading.Timer(WAIT_S, stop.set)
        limit.start()
        left = run_jobs(
            jobs, stop, metrics, Readiness(timedelta(0), schedule.get_utc_now), trace_nothing,
            threads=threads, grace_s=WAIT_S, first_turn_s=0.5,
        )  # fmt: skip
        limit.cancel()
    assert min(turns.values()) >= 5
    assert len(live.windows) >= 5
    assert hanging.connections == 1
    assert "a source" in left
    assert "a job that writes" not in left


def test_threads_that_are_closed_take_no_more_and_wait_for_what_runs() -> None:
    threads, ended = DaemonThreads("test", 2), []
    threads.submit(lambda: ended.append(1))
    assert threads.close(time.monotonic() + WAIT_S)
    assert ended == [1]
    with pytest.raises(Exception, match="closed"):
        threads.submit(lambda: None)


def test_sigterm_ends_up_whatever_hangs(tmp_path: Path) -> None:
    with dripping() as exporters, dripping(first=b"") as prometheus:
        environ = {k: v for k, v in os.environ.items() if not k.startswith("FALLOW_")} | {
            "FALLOW_HOME": str(tmp_path / "home"),
            "FALLOW_EXPORTERS__TARGETS": f'["{exporters.url}/metrics"]',
            "FALLOW_EXPORTERS__TIMEOUT": "1h",
            "FALLOW_PROMETHEUS__URL": prometheus.url,
            "FALLOW_PROMETHEUS__TIMEOUT": "1h",
            "PYTHONPATH": str(Path(loop.__file__).parents[2]),
        }
        command = [sys.executable, "-c", "from runtime.cli import main; main()", "up"]
        roles = [f"--role={role}" for role in sorted(PARTS - {ServiceRole.dashboard})]
        with subprocess.Popen(
            [*command, "--listen", "127.0.0.1:0", *roles],
            env=environ, cwd=tmp_path, stderr=subprocess.PIPE, text=True,
        ) as process:  # fmt: skip
            limit = threading.Timer(WAIT_S, process.kill)
            limit.start()
            assert exporters.connected.wait(WAIT_S)
            assert prometheus.connected.wait(WAIT_S)
            process.send_signal(signal.SIGTERM)
            assert process.stderr is not None
            log = process.stderr.read()
            assert process.wait(WAIT_S) == 0, log
            limit.cancel()
    assert "stopped without what still hangs" in log
    assert "nothing is half-written" in log
    with Warehouse.open(load(environ=environ).settings, write=True) as lake:
        assert [check for check in verify_warehouse(lake) if not check.ok] == []
