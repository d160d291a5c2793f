"""Servers that misbehave, and a collector of the real one's day, read once."""

import urllib.error
import urllib.parse
import urllib.request
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from typing import Any

import pytest

from collectors.prometheus.client import PrometheusClient
from collectors.prometheus.collector import PrometheusCollector
from fallow.settings import load
from fallow.settings.collectors import PrometheusSettings
from fallow.window import Window
from tests.servers.misbehaving import Answer, Misbehaving, misbehaving
from tests.servers.prometheus import END, HOURS

Rows = Mapping[str, list[dict[str, Any]]]
Asking = Callable[..., PrometheusClient]


@pytest.fixture
def server() -> Iterator[Misbehaving]:
    with misbehaving() as listening:
        yield listening


@pytest.fixture
def slept() -> list[float]:
    """How long clients waited between tries, in seconds; nobody really waits."""
    return []


@pytest.fixture
def asking(server: Misbehaving, slept: list[float]) -> Iterator[Asking]:
    """Return a maker of clients of the misbehaving server."""
    made = []

    def make(**settings: Any) -> PrometheusClient:
        given = {"url": server.url, "retries": 2, **settings}
        made.append(PrometheusClient(PrometheusSettings(**given), sleep=slept.append))
        return made[-1]

    yield make
    for client in made:
        client.close()


@pytest.fixture(scope="session")
def past_rows(prometheus_with_history: str) -> Rows:
    """Return everything that the collector yields of the real server's day, by table."""
    settings = load(environ={}, flags={"prometheus.url": prometheus_with_history}).settings
    collector = PrometheusCollector(settings.prometheus, "real", lambda: END + timedelta(hours=2))
    rows: dict[str, list[dict[str, Any]]] = defaultdict(list)
    window = Window(END - timedelta(hours=HOURS), END)
    for batch in collector.collect(window):
        rows[batch.table] += batch.rows.to_pylist()
    assert collector.failure is None
    return rows


@pytest.fixture
def passing_on(server: Misbehaving, prometheus_with_history: str) -> Misbehaving:
    """Return a server that passes every question on to the real one, and remembers it."""

    def ask(path: str, parameters: Mapping[str, str]) -> Answer:
        address = f"{prometheus_with_history}{path}?{urllib.parse.urlencode(parameters)}"
        try:
            with urllib.request.urlopen(address, timeout=60) as answer:
                return Answer(answer.status, answer.read())
        except urllib.error.HTTPError as error:
            return Answer(error.code, error.read())

    server.answering = ask
    return server
