"""Instant readings of a few pods: which queries are sent, what rows come, what a failure is."""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import numpy as np
import pytest

from collectors.prometheus.client import PrometheusClient
from collectors.prometheus.latest import RANGE, read_latest
from collectors.prometheus.usage import build_rows
from fallow.settings.collectors import PrometheusSettings
from fallow.window import Window
from tests.servers.misbehaving import Answer, Misbehaving, misbehaving

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)


@pytest.fixture
def server() -> Iterator[Misbehaving]:
    with misbehaving() as made:
        yield made


def read(server: Misbehaving, *pods: tuple[str, str], selector: str = "") -> dict[str, Any]:
    settings = PrometheusSettings(url=server.url, selector=selector)
    client = PrometheusClient(settings, sleep=lambda _s: None)
    return {
        b.table: b.rows.to_pylist() for b in read_latest(settings, "c", pods, NOW, client=client)
    }


def vector(*pairs: tuple[str, str]) -> Answer:
    found = [{"metric": {"namespace": "ml", "pod": p}, "value": [0, v]} for p, v in pairs]
    data = {"resultType": "vector", "result": found}
    return Answer(body=msgspec.json.encode({"status": "success", "data": data}))


def test_rates_of_the_last_two_minutes_of_the_pods_named(server: Misbehaving) -> None:
    def answer(_path: str, parameters: Mapping[str, str]) -> Answer:
        query = parameters.get("query", "")
        if "container_cpu_usage" in query:
            return vector(("nb-0", "0.25"), ("nb-1", "NaN"))
        if "vllm" in query:
            return vector(("nb-0", "3"))
        return Answer()

    server.answering = answer
    found = read(server, ("ml", "nb-0"), ("ml", "nb-1"), selector='site="a"')
    (row,) = found["pod_sample"]
    assert (row["pod"], row["cpu_cores"], row["requests_per_s"]) == ("nb-0", 0.25, 3.0)
    assert (row["ts"], row["interval_s"]) == ((NOW - RANGE).replace(tzinfo=None), 120.0)
    queries = [p["query"] for _, p in server.asked]
    cpu = next(q for q in queries if "container_cpu_usage" in q)
    assert 'site="a",namespace="ml",pod=~"nb-0|nb-1"}[120s]' in cpu
    assert all(p["time"].startswith(str(int(NOW.timestamp()))) for _, p in server.asked)
    assert [r["up"] for r in found["scrape"]] == [True]


def test_names_are_names_and_no_patterns(server: Misbehaving) -> None:
    read(server, ("ml", "a.b"))
    assert any('pod=~"a\\\\.b"' in p["query"] for _, p in server.asked)


@pytest.mark.parametrize(
    ("ahead_s", "said"), [(600.0, "ahead of this machine's"), (-600.0, "behind this machine's")]
)
def test_values_of_a_server_whose_clock_differs_are_no_reading(
    server: Misbehaving, ahead_s: float, said: str
) -> None:
    server.answering = lambda _path, _parameters: vector(("nb-0", "0.25"))
    assert read(server, ("ml", "nb-0"))["pod_sample"]
    server.ahead_s = ahead_s
    found = read(server, ("ml", "nb-0"))
    assert not found.get("pod_sample")
    (row,) = found["scrape"]
    assert not row["up"]
    assert said in row["error"]


def test_a_server_that_does_not_answer_is_a_failed_look(server: Misbehaving) -> None:
    server.answers = [Answer(status=503, body=b"away")]
    found = read(server, ("ml", "nb-0"))
    assert not found.get("pod_sample")
    (row,) = found["scrape"]
    assert (row["collector"], row["up"], row["target"]) == ("prometheus", False, server.url)
    assert "503" in row["error"]


def test_a_count_below_zero_is_no_reading_and_takes_nothing_from_others() -> None:
    """Three requests run; a server that says -5 wait has not said that fewer are held."""
    key: tuple[str, ...] = ("ml", "web-1")
    at = datetime(2026, 11, 20, 12, tzinfo=UTC)
    found = {
        "requests_running": {key: np.array([3.0])},
        "requests_waiting": {key: np.array([-5.0])},
    }
    minute = timedelta(minutes=1)
    batch = build_rows("pod_sample", found, Window(at, at + minute), minute, cluster="c")
    assert batch is not None
    [row] = batch.rows.to_pylist()
    assert (row["requests_running"], row["requests_waiting"]) == (3.0, None)
