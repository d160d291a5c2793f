"""Samples by remote read are those of JSON, or JSON is read."""

import json
import struct
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from collectors.prometheus import collector as collecting
from collectors.prometheus.client import PrometheusClient
from collectors.prometheus.collector import PrometheusCollector
from collectors.prometheus.raw import read_samples
from collectors.prometheus.remote_read import RemoteReader
from fallow.settings import load
from fallow.window import Window
from tests.prometheus.test_streamed_chunks import chunk, frame, label
from tests.servers import prometheus
from tests.servers.misbehaving import Answer, Misbehaving
from tests.servers.prometheus import END, HOURS

pytestmark = pytest.mark.xdist_group("prometheus")
Rows = Mapping[str, list[dict[str, Any]]]
START = datetime(2026, 11, 19, tzinfo=UTC)
HOUR = Window(START, START + timedelta(hours=1))
STALE = struct.unpack("<d", (0x7FF0000000000002).to_bytes(8, "little"))[0]
METRIC = "DCGM_FI_DEV_POWER_USAGE"
LIMIT = 2**28
Samples = Sequence[tuple[int, float]]


def series(labels: Mapping[str, str], samples: Samples) -> bytes:
    return label(labels, chunk(samples))


def collect(url: str, window: Window, chunk: str = "6h") -> tuple[PrometheusCollector, Rows]:
    flags = {"prometheus.url": url, "prometheus.chunk": chunk}
    settings = load(environ={}, flags=flags).settings.prometheus
    later = window.end + timedelta(hours=2)
    collector = PrometheusCollector(settings, "real", lambda: later)
    rows: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for batch in collector.collect(window):
        rows[batch.table] += batch.rows.to_pylist()
    assert collector.failure is None
    return collector, {name: sorted(rows_of, key=repr) for name, rows_of in rows.items()}


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Let every window be read by remote read; return the answers that came."""
    monkeypatch.setattr(collecting, "LEAST_REMOTE", 0)
    answers: list[bytes] = []
    post = PrometheusClient.post_read

    def count(self: PrometheusClient, request: bytes) -> bytes:
        answers.append(post(self, request))
        return answers[-1]

    monkeypatch.setattr(PrometheusClient, "post_read", count)
    return answers


def test_a_day_of_a_real_server_has_the_same_rows(
    prometheus_with_history: str, past_rows: Rows, reads: list[bytes]
) -> None:
    window = Window(END - timedelta(hours=HOURS), END)
    rows = collect(prometheus_with_history, window)[1]
    assert len(reads) > 20
    for table in ("sample", "pod", "cursor"):
        assert rows[table] == sorted(past_rows[table], key=repr), table
    assert set(rows) == set(past_rows)
    assert _without_seconds(rows["scrape"]) == _without_seconds(past_rows["scrape"])


@pytest.mark.parametrize("chunk", ["1h", "12h"])
def test_the_length_of_questions_changes_no_rows(
    prometheus_with_history: str, past_rows: Rows, reads: list[bytes], chunk: str
) -> None:
    window = Window(END - timedelta(hours=HOURS), END)
    rows = collect(prometheus_with_history, window, chunk)[1]
    assert reads
    assert rows["sample"] == sorted(past_rows["sample"], key=repr)


def _without_seconds(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Leave out how long a chunk took."""
    return sorted(({k: v for k, v in row.items() if k != "seconds"} for row in rows), key=repr)


EXTERNAL = "  external_labels: {cluster: a, prometheus_replica: p-0}\n"
OTHERS = "remote_read: [{url: 'http://127.0.0.1:9/read'}]\n"


def small_server(folder: Path, configured: str) -> Iterator[str]:
    lines = [
        f'{METRIC}{{UUID="GPU-{n}",Hostname="node-{n}"}} {minute % 7} '
        f"{START.timestamp() + 60 * minute:.3f}"
        for n in range(3)
        for minute in range(60)
    ]
    text = f"# TYPE {METRIC} gauge\n" + "\n".join(lines) + "\n# EOF\n"
    data = prometheus.blocks(text, folder)
    with prometheus.serving(
        data, configured="global:\n  scrape_interval: 1h\n" + configured
    ) as url:
        yield url


@pytest.mark.parametrize(("configured", "is_used"), [(EXTERNAL, True), (OTHERS, False)])
def test_external_labels_change_nothing_and_other_stores_are_left_to_queries(
    tmp_path: Path, configured: str, is_used: bool
) -> None:
    for url in small_server(tmp_path / "small", configured):
        client = PrometheusClient(
            load(environ={}, flags={"prometheus.url": url}).settings.prometheus
        )
        reader = RemoteReader(client, body_size_limit=LIMIT)
        matrix = reader.read([METRIC], HOUR)
        assert (matrix is not None) == is_used
        assert reader.is_refused != is_used
        if matrix is not None:
            expected = read_samples(client, METRIC, HOUR)
            assert np.array_equal(matrix.ts, expected.ts)
            assert np.array_equal(matrix.values, expected.values)
            assert b'"prometheus_replica":"p-0"' in matrix.labels[0]
        client.close()


def test_samples_that_differ_from_those_of_a_query_are_not_used(
    server: Misbehaving, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = START.timestamp()
    labels = {"__name__": METRIC, "UUID": "GPU-1", "Hostname": "n"}
    result = [{"metric": labels, "values": [[at, "1"], [at + 60, "2"]]}]
    whole_matrix = {"status": "success", "data": {"resultType": "matrix", "result": result}}
    config = {"status": "success", "data": {"yaml": "global: {}\n"}}

    def respond(path: str, _parameters: Mapping[str, str]) -> Answer:
        whole = config if path.endswith("/config") else whole_matrix
        return Answer(body=json.dumps(whole, separators=(",", ":")).encode())

    server.answering = respond
    settings = load(environ={}, flags={"prometheus.url": server.url}).settings.prometheus
    same: Samples = [(round(at * 1000), 1.0), (round(at * 1000) + 60_000, 2.0)]
    for samples, node, is_used in (
        (same, "n", True),
        (same[:1], "n", False),
        ([same[0], (same[1][0], 2.5)], "n", False),
        ([same[0], (same[1][0] + 1, 2.0)], "n", False),
        (same, "another", False),
    ):
        client = PrometheusClient(settings)
        body = frame(series({**labels, "Hostname": node}, samples))
        monkeypatch.setattr(client, "post_read", lambda _request, body=body: body)
        matrix = RemoteReader(client, body_size_limit=LIMIT).read([METRIC], HOUR)
        assert (matrix is not None) == is_used, (samples, node)
        client.close()


def test_a_server_without_remote_read_is_read_as_json(
    passing_on: Misbehaving, past_rows: Rows, reads: list[bytes]
) -> None:
    rows = collect(passing_on.url, Window(END - timedelta(hours=HOURS), END))[1]
    assert not reads  # it answers GET alone
    assert rows["sample"] == sorted(past_rows["sample"], key=repr)
