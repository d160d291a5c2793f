"""A day of a fleet out of a real Prometheus into wide Arrow rows, and into the warehouse.

Decoding is measured apart from serving: Debian's Prometheus needs more CPU to write an answer than
we to read it, and on two cores the two run side by side. The peer is `prometheus-api-client`,
whose answers are Python objects and then its own data frames.
"""

import json
import multiprocessing
import resource
import shutil
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import servers
from benchmarks.remote_write import write
from benchmarks.result import Result
from collectors.prometheus.client import PrometheusClient
from collectors.prometheus.collector import PrometheusCollector
from collectors.prometheus.decode import decode_matrix
from fallow.settings import Settings, load
from fallow.window import Window
from runtime.operations.ingestion.collection import build_prometheus_collector, drain
from runtime.operations.ingestion.telemetry_slices import SLICE_SAMPLES, read_slices
from warehouse.lake import Warehouse

START = datetime(2026, 11, 19, tzinfo=UTC)
DAY = timedelta(days=1)
STEP_S = 60
BLOCK = 50
"""Series of one write."""
METRICS = {
    "DCGM_FI_DEV_GPU_UTIL": "percent",
    "DCGM_FI_PROF_GR_ENGINE_ACTIVE": "ratio",
    "DCGM_FI_PROF_SM_ACTIVE": "ratio",
    "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": "ratio",
    "DCGM_FI_PROF_DRAM_ACTIVE": "ratio",
    "DCGM_FI_DEV_FB_USED": "mib",
    "DCGM_FI_DEV_POWER_USAGE": "watts",
    "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": "energy",
    "DCGM_FI_DEV_GPU_TEMP": "celsius",
    "DCGM_FI_DEV_SM_CLOCK": "mhz",
}


def run(small: bool) -> list[Result]:
    """Fill a Prometheus with a day at 60 s and read it back three ways."""
    gpus = 200 if small else 10_000
    samples = gpus * len(METRICS) * round(DAY.total_seconds() / STEP_S)
    work = Path(tempfile.mkdtemp(prefix="fallow-backfill-"))
    try:
        with servers.run_receiving(work / "prometheus", block="4d") as (url, _pid):
            began = time.perf_counter()
            _run_apart(fill, url, gpus, START, 1)
            filled = time.perf_counter() - began
            size = f"{gpus} GPUs x {len(METRICS)} metrics x 1 day at {STEP_S} s"
            print(f"backfill: {samples / 1e6:.1f} M samples written in {filled:.0f} s", flush=True)
            decoded = _run_apart(_measure_decoding, url, min(gpus, 1000))
            return [
                *decoded,
                *_run_apart(_measure_collecting, url, samples, size, decoded[-1].value),
                *_run_apart(_measure_storing, url, samples, size, work / "home"),
                *_run_apart(_measure_slices, url, samples, size, work / "slices"),
            ]
    finally:
        shutil.rmtree(work)


def fill(url: str, gpus: int, start: datetime, days: int) -> None:
    """Write days of a fleet's metrics into a Prometheus that takes writes."""
    rng = np.random.default_rng(0)
    count = round(days * DAY.total_seconds() / STEP_S)
    seconds = round(start.timestamp()) + STEP_S * np.arange(count)
    for first in range(0, gpus, BLOCK):
        devices = range(first, min(first + BLOCK, gpus))
        # Scrapes of a node have their own moment inside the interval.
        ts = seconds * 1000 + 1000 * (first // BLOCK % STEP_S) + 131
        level = np.clip(rng.normal(0.6, 0.3, (len(devices), 1)), 0, 1)
        busy = np.clip(level * rng.normal(1, 0.05, (len(devices), len(ts))), 0, 1)
        for name, kind in METRICS.items():
            label_sets = [_build_labels(name, device) for device in devices]
            write(url, label_sets, ts, _draw_values(kind, busy))


def _draw_values(kind: str, busy: np.ndarray) -> np.ndarray:
    series_makers: dict[str, Callable[[], np.ndarray]] = {
        "percent": lambda: np.rint(busy * 100),
        "ratio": lambda: np.round(busy * 0.8, 6),
        "mib": lambda: np.broadcast_to(np.rint(70_000 * busy[:, :1]), busy.shape),
        "watts": lambda: np.round(70 + 600 * busy, 3),
        "energy": lambda: np.cumsum(np.rint((70 + 600 * busy) * 60_000), axis=1) + 1e11,
        "celsius": lambda: np.rint(30 + 40 * busy),
        "mhz": lambda: np.where(busy > 0.05, 1980.0, 345.0),
    }
    return series_makers[kind]()


def _build_labels(name: str, device: int) -> dict[str, str]:
    node = device // 8
    return {
        "__name__": name,
        "gpu": str(device % 8),
        "UUID": f"GPU-{device * 2654435761 % 2**32:08x}-5eed-f1ee-0000-{device:012d}",
        "pci_bus_id": f"00000000:{device % 8:02X}:00.0",
        "device": f"nvidia{device % 8}",
        "modelName": "NVIDIA H100 80GB HBM3",
        "Hostname": f"node-{node:05d}",
        "DCGM_FI_DRIVER_VERSION": "570.133.20",
        "container": "main",
        "namespace": f"team-{node % 100:02d}",
        "pod": f"job-{node:05d}-0",
        "instance": f"10.{node // 256}.{node % 256}.1:9400",
        "job": "dcgm-exporter",
    }


def _measure_decoding(url: str, gpus: int) -> list[Result]:
    """Read some GPUs' six hours by both: bytes in hand to arrays, to data frames."""
    from prometheus_api_client import MetricRangeDataFrame, PrometheusConnect

    name, hours = "DCGM_FI_PROF_GR_ENGINE_ACTIVE", timedelta(hours=6)
    some = f'{name}{{UUID=~"GPU-.*-0*[0-9]{{1,{len(str(gpus)) - 1}}}"}}'
    client = PrometheusClient(_build_settings(url).prometheus)
    body = client.query(f"{some}[6h]", START + hours)
    count = int(decode_matrix(body).lengths.sum())
    ours = count / _find_best(lambda: decode_matrix(body), 5)
    part = json.loads(body)["data"]["result"][: max(10, gpus // 10)]
    small = json.dumps({"data": {"result": part}}).encode()
    few = sum(len(series["values"]) for series in part)
    theirs = few / _find_best(lambda: MetricRangeDataFrame(json.loads(small)["data"]["result"]), 2)
    began, used = time.perf_counter(), time.process_time()
    frame = MetricRangeDataFrame(
        PrometheusConnect(url).custom_query(
            f'{name}{{Hostname=~"node-000[01][0-9]"}}[6h]',
            params={"time": _convert_time(START + hours)},
        )
    )
    their_wall = len(frame) / (time.perf_counter() - began)
    their_cpu = len(frame) / (time.process_time() - used)
    return [
        Result(
            name="decode answers into Arrow arrays",
            value=ours / 1e6,
            unit="M samples/s",
            reach=1.0,
            at_most=False,
            peer="prometheus-api-client's data frames",
            peer_value=theirs / 1e6,
            ratio=ours / theirs,
            note=f"CPU of one thread; {count} samples, {len(body) / count:.0f} bytes each",
        ),
        Result(
            name="peer: fetched to its data frame, wall",
            value=their_wall / 1e6,
            unit="M samples/s",
            note=f"{their_cpu / 1e6:.3f} M samples per CPU-second, {len(frame)} samples",
        ),
    ]


def _measure_collecting(url: str, samples: int, size: str, peer: float) -> list[Result]:
    collector = PrometheusCollector(
        _build_settings(url).prometheus, "bench", lambda: START + 2 * DAY
    )
    began, used = time.perf_counter(), time.process_time()
    rows = 0
    for batch in collector.collect(Window(START, START + DAY)):
        rows += batch.rows.num_rows if batch.table == "sample" else 0
    wall, cpu = time.perf_counter() - began, time.process_time() - used
    _check_whole(collector, rows * len(METRICS), samples)
    note = f"{size}; {rows} rows, {wall:.0f} s"
    return [
        Result(
            name="fetch, decode and lay out wide rows, per CPU-second of ours",
            value=samples / cpu / 1e6,
            unit="M samples/s",
            reach=1.0,
            at_most=False,
            note=note,
        ),
        Result(
            name="the same, wall, Prometheus serving on the same two cores",
            value=samples / wall / 1e6,
            unit="M samples/s",
            peer="prometheus-api-client, fetched to its data frame",
            peer_value=peer,
            ratio=samples / wall / 1e6 / peer,
            note=f"{collector.client.queries} queries",
        ),
        Result(name="its peak memory", value=_read_peak_gb(), unit="GB", reach=2.0, note=size),
    ]


def _measure_storing(url: str, samples: int, size: str, home: Path) -> list[Result]:
    settings = _build_settings(url, home)
    collector = PrometheusCollector(settings.prometheus, "bench", lambda: START + 2 * DAY)
    began = time.perf_counter()
    with Warehouse.open(settings, write=True, clock=lambda: START + 2 * DAY) as warehouse:
        added, _ = drain(
            warehouse, collector, Window(START, START + DAY), lambda _step, _part: None
        )
    wall = time.perf_counter() - began
    _check_whole(collector, samples, samples)
    return [
        Result(
            name="and store: committed and fsynced, wall",
            value=samples / wall / 1e6,
            unit="M samples/s",
            note=f"{added} rows, {wall:.0f} s",
        ),
        Result(
            name="its peak memory, storing", value=_read_peak_gb(), unit="GB", reach=2.0, note=size
        ),
    ]


def _measure_slices(url: str, samples: int, size: str, home: Path) -> list[Result]:
    """Import with two workers: the driver's CPU bounds how many of them are of use."""
    later = START + 2 * DAY
    settings = _build_settings(url, home, **{"warehouse.processes": 2})
    began, used = time.perf_counter(), time.process_time()
    with Warehouse.open(settings, write=True, clock=lambda: later) as warehouse:
        collector = build_prometheus_collector(
            settings, clock=lambda: later, max_samples=SLICE_SAMPLES
        )
        window = Window(START, START + DAY)
        read = read_slices(settings, collector, window, later)
        added, _ = drain(warehouse, collector, window, lambda _step, _part: None, read_before=read)
    wall, cpu = time.perf_counter() - began, time.process_time() - used
    workers = resource.getrusage(resource.RUSAGE_CHILDREN)
    workers_cpu = workers.ru_utime + workers.ru_stime
    note = f"{size}; {added} rows, {wall:.0f} s; driver {cpu:.1f} CPU s, workers {workers_cpu:.1f}"
    return [
        Result(
            name="import with 2 workers, Prometheus on the same two cores, wall",
            value=samples / wall / 1e6,
            unit="M samples/s",
            note=note,
        ),
        Result(
            name="its driver, per CPU-second: the bound of many workers",
            value=samples / cpu / 1e6,
            unit="M samples/s",
            note=note,
        ),
        Result(
            name="peak memory of one of its workers",
            value=workers.ru_maxrss / 1e6,
            unit="GB",
            reach=1.5,
            note=note,
        ),
        Result(name="peak memory of its driver", value=_read_peak_gb(), unit="GB", note=note),
    ]


def _check_whole(collector: PrometheusCollector, got: int, wanted: int) -> None:
    if collector.failure is not None:
        raise collector.failure
    if got != wanted:
        raise RuntimeError(f"read {got} values of {wanted}")


def _build_settings(url: str, home: Path = Path("unused"), **flags: Any) -> Settings:
    return load(environ={}, flags={"home": home, "prometheus.url": url, **flags}).settings


def _convert_time(timestamp: datetime) -> float:
    return timestamp.timestamp()


def _read_peak_gb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6


def _find_best(work: Callable[[], object], rounds: int) -> float:
    seconds = float("inf")
    for _ in range(rounds):
        began = time.process_time()
        work()
        seconds = min(seconds, time.process_time() - began)
    return seconds


def _run_apart(work: Callable[..., Any], *arguments: Any) -> Any:
    """Run in a process of its own: its peak memory is its own."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(work, *arguments).result()
