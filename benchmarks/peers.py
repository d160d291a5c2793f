"""The same utilisation samples in Fallow, Prometheus, VictoriaMetrics and chDB; two questions.

    A  mean utilisation per namespace over 30 days at 5 minutes
    B  devices whose utilisation stayed below 5 % for the last 2 hours

Prometheus needs a CPU-minute per 17 million samples to be filled, so A is asked of 2,000 devices
over 30 days and B of 10,000 devices over one; `benchmarks.rollup` asks A of 10,000 for 30 days.
Fallow answers both from the hourly rollups that it keeps, which have the mean, the count and the
greatest value of each whole hour, and once more from five-minute rollups, which must agree.
A of 40 devices over 2 days is the fixed cost of a query: most sites are small.
chDB (ClickHouse in a process) is installed for this alone, beside the locked packages.
"""

import importlib
import json
import math
import shutil
import statistics
import subprocess
import tempfile
import time
import urllib.parse
import urllib.request
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

import duckdb
import pyarrow as pa

from benchmarks import servers
from benchmarks.result import Result
from fallow.settings import load
from fallow.tables import Batch
from warehouse.lake import Warehouse
from warehouse.owner_hours import reduce_hours

STEP = timedelta(minutes=5)
START = datetime(2026, 10, 1, tzinfo=UTC)
SMALLEST = 80
"""Devices up to which a query's fixed cost is measured, and no ratio to the peers is wanted."""
T = TypeVar("T")
Answer = dict[str, tuple[float, object]]
UTIL = "util.parquet"
METRIC = "DCGM_FI_DEV_GPU_UTIL"
SQL = (Path(__file__).parent / "peers.sql").read_text()
MEANS = f"sum by (namespace) (sum_over_time({METRIC}[{{days}}d]))"
MEANS += f" / sum by (namespace) (count_over_time({METRIC}[{{days}}d]))"
IDLE = f"count(max_over_time({METRIC}[2h]) < 5)"
OUR_MEANS = """
SELECT namespace, sum(gpu_util_pct_mean::DOUBLE * gpu_util_pct_n) / sum(gpu_util_pct_n) AS mean
FROM rollup_1h WHERE bucket >= $start AND bucket < $end GROUP BY namespace
"""
OUR_FINE_MEANS = OUR_MEANS.replace("rollup_1h", "rollup_5m")
OUR_IDLE = """
SELECT count(*) FROM (
    SELECT device, namespace, pod FROM rollup_1h WHERE bucket >= $start AND bucket < $end
    GROUP BY ALL HAVING max(gpu_util_pct_max) < 5
)
"""
OUR_FINE_IDLE = OUR_IDLE.replace("rollup_1h", "rollup_5m")
PART = "FROM rollup_5m WHERE bucket >= $first AND bucket < $last"
WORST = 1e-7
"""Relative difference of the means of hours, whose columns are single precision."""


def run(small: bool) -> list[Result]:
    """Fill them all with the same samples and time A and B, best of five."""
    fixed = ("A", 40, 2)
    sizes = [fixed, ("B", 80, 1)] if small else [fixed, ("A", 2000, 30), ("B", 10_000, 1)]
    out: list[Result] = []
    for question, devices, days in sizes:
        work = Path(tempfile.mkdtemp(prefix="fallow-peers-"))
        try:
            out += _measure(work, question, devices, days)
        finally:
            shutil.rmtree(work)
    return out


QUESTIONS = {"A": "mean utilisation per namespace", "B": "idle over 2 h"}
REACHES = {("A", "Prometheus"): 30, ("A", "VictoriaMetrics"): 4, ("B", "Prometheus"): 3}
"""How many times as fast as the peer, at the full sizes."""
REACHES_MS = {("A", 40): 3.0, ("A", 2000): 60.0, ("B", 10_000): 15.0}


def _measure(work: Path, question: str, devices: int, days: int) -> list[Result]:
    con = duckdb.connect()
    parameters = {
        "start_us": int(START.timestamp()) * 1_000_000,
        "step_us": int(STEP.total_seconds()) * 1_000_000,
        "steps": days * 288,
        "devices": devices,
    }
    con.execute(f"CREATE TABLE util AS {SQL}", parameters)
    end = START + timedelta(days=days)
    ours = _query_ours(con, work, devices, end)
    texts = _write_texts(con, work, days)
    figure = f"{QUESTIONS[question]} ({devices} GPUs, {days} d)"
    seconds, reach = ours[question][0] * 1000, REACHES_MS.get((question, devices))
    fine = f"; of five-minute rollups {ours['fine ' + question][0] * 1000:.1f} ms"
    out: list[Result] = []
    for name, fill in PEERS.items():
        try:
            theirs = fill(work, texts, end, days)
        except servers.PeerMissingError as error:
            note = f"absent: {error}{fine}"
            out.append(Result(name=figure, value=seconds, unit="ms", reach=reach, note=note))
            continue
        _compare(ours, theirs, name)
        peer = theirs[question][0] * 1000
        out.append(
            Result(
                name=figure,
                value=seconds,
                unit="ms",
                reach=reach,
                peer=name,
                peer_value=peer,
                ratio=peer / seconds,
                reach_ratio=REACHES.get((question, name)) if devices > SMALLEST else None,
                note=f"{name} {peer:.0f} ms{fine}",
            )
        )
    return out


def _query_ours(con: duckdb.DuckDBPyConnection, work: Path, devices: int, end: datetime) -> Answer:
    settings = load(environ={}, flags={"home": work / "fallow"}).settings
    with Warehouse.open(settings, write=True) as warehouse:
        step = max(1, 2_000_000 // (288 * devices))
        timestamp = START
        while timestamp < end:
            until = min(timestamp + timedelta(days=step), end)
            bounds = [timestamp.replace(tzinfo=None), until.replace(tzinfo=None)]
            part = con.execute(
                "SELECT * FROM util WHERE ts >= ? AND ts < ?", bounds
            ).to_arrow_table()
            warehouse.replace("rollup_5m", _query_rollup(part), "false", {})
            hours = {"first": bounds[0], "last": bounds[1]}
            rows = reduce_hours(warehouse.query(PART, hours), threads=1)
            warehouse.replace("rollup_1h", rows, "false", {})
            timestamp = until
        window = {"start": START.replace(tzinfo=None), "end": end.replace(tzinfo=None)}
        recent = {"start": (end - timedelta(hours=2)).replace(tzinfo=None), "end": window["end"]}
        means = _find_best(lambda: warehouse.query(OUR_MEANS, window))
        idle = _find_best(lambda: warehouse.query(OUR_IDLE, recent))
        fine = _find_best(lambda: warehouse.query(OUR_FINE_MEANS, window))
        fine_idle = _find_best(lambda: warehouse.query(OUR_FINE_IDLE, recent))
        by, of_buckets = _list_means(means[1]), _list_means(fine[1])
        assert by.keys() == of_buckets.keys()
        for name, mean in of_buckets.items():
            assert math.isclose(by[name], mean, rel_tol=WORST), (name, by[name], mean)
        count, fine_count = (rows.column(0)[0].as_py() for _, rows in (idle, fine_idle))
        assert count == fine_count, (count, fine_count)
        return {
            "A": (means[0], by),
            "B": (idle[0], count),
            "fine A": (fine[0], of_buckets),
            "fine B": (fine_idle[0], fine_count),
        }


def _list_means(table: pa.Table) -> dict[str, float]:
    return dict(zip(table["namespace"].to_pylist(), table["mean"].to_pylist(), strict=True))


def _query_rollup(part: pa.Table) -> pa.Table:
    util = part["util"]
    ones = pa.array([1] * len(part), pa.int32())
    data: dict[str, object] = {
        "cluster": ["bench"] * len(part),
        "bucket": part["ts"],
        "device": part["device"],
        "namespace": part["namespace"],
        "pod": part["pod"],
        "node": part["node"],
        "n": ones,
        "gpu_util_pct_n": ones,
        **{f"gpu_util_pct_{k}": util for k in ("min", "mean", "max")},
    }
    return Batch.of("rollup_5m", data).rows


def _write_texts(con: duckdb.DuckDBPyConnection, work: Path, days: int) -> list[Path]:
    """Write one file of OpenMetrics text per day: promtool reads a file once per block.

    chDB reads all days from `UTIL`, a file of Parquet.
    """
    texts = []
    con.execute(f"COPY util TO '{work / UTIL}'")
    for day in range(days):
        path = work / f"day{day:02}.txt"
        start = START + timedelta(days=day)
        bounds = [start.replace(tzinfo=None), (start + timedelta(days=1)).replace(tzinfo=None)]
        con.execute(
            f"""
            COPY (
                SELECT '{METRIC}{{UUID="' || device || '",Hostname="' || node || '",namespace="'
                    || namespace || '",pod="' || pod || '"}} ' || util || ' ' || epoch(ts)::BIGINT
                FROM util WHERE ts >= ? AND ts < ? ORDER BY device, ts
            ) TO '{path}' (FORMAT csv, HEADER false, QUOTE '', ESCAPE '', DELIMITER '\x01')
            """,
            bounds,
        )
        with path.open("a") as out:
            out.write("# EOF\n")
        texts.append(path)
    return texts


def _query_prometheus(work: Path, texts: list[Path], end: datetime, days: int) -> Answer:
    promtool = servers.find_binary("promtool", "prometheus")
    data = work / "prometheus"
    for text in texts:
        command = [promtool, "tsdb", "create-blocks-from", "openmetrics", "-q"]
        command += ["--max-block-duration=24h", str(text), str(data)]
        subprocess.run(command, check=True, capture_output=True)
    with servers.run_prometheus(data) as url:
        return _query_both(url, end, days)


def _query_victoria(work: Path, texts: list[Path], end: datetime, days: int) -> Answer:
    data = work / "victoria"
    data.mkdir()
    with servers.run_victoria_metrics(data) as url:
        for text in texts:
            lines = text.read_bytes().removesuffix(b"# EOF\n").replace(b"\n", b"000\n")
            urllib.request.urlopen(f"{url}/api/v1/import/prometheus", lines, timeout=600).close()
        urllib.request.urlopen(f"{url}/internal/force_flush", timeout=600).close()
        return _query_both(url, end, days)


def _query_chdb(work: Path, _texts: list[Path], end: datetime, _days: int) -> Answer:
    try:
        session = importlib.import_module("chdb.session")
    except ModuleNotFoundError as error:
        raise servers.PeerMissingError("chdb is not installed (uv pip install chdb)") from error
    engine = session.Session(str(work / "chdb"))
    columns = ("ts", "device", "namespace", "pod", "util")
    listed = ", ".join(f"assumeNotNull({name}) AS {name}" for name in columns)
    engine.query(
        "CREATE TABLE util ENGINE = MergeTree ORDER BY (device, ts) AS "
        f"SELECT {listed} FROM file('{work / UTIL}')"
    )

    def read(sql: str) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = json.loads(str(engine.query(sql, "JSON")))["data"]
        return rows

    recent = (end - timedelta(hours=2)).strftime("%Y-%m-%d %H:%M:%S")
    means = _find_best(lambda: read("SELECT namespace, avg(util) AS mean FROM util GROUP BY ALL"))
    idle = _find_best(
        lambda: read(
            "SELECT toUInt32(count()) AS n FROM ("
            f"SELECT device FROM util WHERE ts >= toDateTime64('{recent}', 6) "
            "GROUP BY device, namespace, pod HAVING max(util) < 5)"
        )
    )
    engine.close()
    by = {row["namespace"]: float(row["mean"]) for row in means[1]}
    return {"A": (means[0], by), "B": (idle[0], int(idle[1][0]["n"]))}


PEERS = {
    "Prometheus": _query_prometheus,
    "VictoriaMetrics": _query_victoria,
    "chDB": _query_chdb,
}


def _query_both(url: str, end: datetime, days: int) -> Answer:
    # One second before the end: Prometheus 2.42 closes a range on both sides.
    timestamp = end.timestamp() - 1
    means = _find_best(lambda: _query(url, MEANS.format(days=days), timestamp))
    idle = _find_best(lambda: _query(url, IDLE, timestamp))
    by = {row["metric"].get("namespace", ""): float(row["value"][1]) for row in means[1]}
    return {"A": (means[0], by), "B": (idle[0], int(idle[1][0]["value"][1]))}


def _query(url: str, expression: str, timestamp: float) -> list[dict[str, Any]]:
    query = urllib.parse.urlencode({"query": expression, "time": timestamp, "nocache": 1})
    with urllib.request.urlopen(f"{url}/api/v1/query?{query}", timeout=900) as answer:
        series_found: list[dict[str, Any]] = json.load(answer)["data"]["result"]
        return series_found


def _find_best(question: Callable[[], T], times: int = 5) -> tuple[float, T]:
    answer = question()
    seconds = []
    for _ in range(times - 1):
        begun = time.perf_counter()
        answer = question()
        seconds.append(time.perf_counter() - begun)
    return min(seconds), answer


def _compare(ours: Answer, theirs: Answer, name: str) -> None:
    """Refuse to compare times of answers that differ."""
    our_answer, other = ours["A"][1], theirs["A"][1]
    assert isinstance(our_answer, dict)
    assert isinstance(other, dict)
    assert our_answer.keys() == other.keys(), (name, our_answer.keys() ^ other.keys())
    worst = max(abs(our_answer[k] - other[k]) for k in our_answer)
    assert worst < 1e-3, f"{name} means differ by {worst}"
    assert ours["B"][1] == theirs["B"][1], f"{name}: {theirs['B'][1]} idle, ours {ours['B'][1]}"
    assert statistics.fmean(our_answer.values()) > 0
