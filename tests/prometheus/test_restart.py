"""A Prometheus that restarts while it is read: every row of before and after is there once."""

from collections import defaultdict
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

import pytest

from collectors.prometheus.client import UnreachableError
from collectors.prometheus.collector import PrometheusCollector
from fallow.settings import load
from fallow.window import Window
from runtime.operations.ingestion.scan import RETRIES
from tests.servers.misbehaving import Answer, Misbehaving
from tests.servers.prometheus import END

pytestmark = pytest.mark.xdist_group("prometheus")
WINDOW = Window(END - timedelta(hours=2), END)
AWAY_S = 60.0
"""How long a server reads its log of writes again before it listens."""


class Reading:
    """A collector as a scan has it, whose waits are counted instead of waited for."""

    def __init__(self, url: str, wait: Callable[[float], None]) -> None:
        words = {"prometheus.url": url, "prometheus.retries": RETRIES, "prometheus.chunk": "30m"}
        settings = load(environ={}, flags=words).settings.prometheus
        self.collector = PrometheusCollector(
            settings, "real", lambda: END + timedelta(hours=2), sleep=wait
        )

    def read(self) -> Mapping[str, list[dict[str, Any]]]:
        rows: dict[str, list[dict[str, Any]]] = defaultdict(list)
        for batch in self.collector.collect(WINDOW):
            columns = [c for c in batch.rows.column_names if c != "seconds"]
            rows[batch.table] += batch.rows.select(columns).to_pylist()
        return rows


@pytest.mark.parametrize(("part", "is_cut"), [(0.1, False), (0.5, True), (0.9, True)])
def test_a_scan_goes_on_after_its_server_restarted(
    passing_on: Misbehaving, part: float, is_cut: bool
) -> None:
    whole = Reading(passing_on.url, lambda _s: None).read()
    assert whole["sample"]
    restart_at = round(len(passing_on.asked) * part)
    passing_on.asked.clear()
    real, waited_s = passing_on.answering, [0.0]

    def answer_or_end(path: str, parameters: Mapping[str, str]) -> Answer:
        answer = real(path, parameters)
        if len(passing_on.asked) == restart_at:
            passing_on.end()
            return answer._replace(cut=True, body=answer.body[: len(answer.body) // 2 * is_cut])
        return answer

    def wait(seconds: float) -> None:
        is_back = waited_s[0] >= AWAY_S
        waited_s[0] += seconds
        if not is_back and waited_s[0] >= AWAY_S:
            passing_on.begin()

    passing_on.answering = answer_or_end
    reading = Reading(passing_on.url, wait)
    assert reading.read() == whole
    assert reading.collector.failure is None
    assert waited_s[0] >= AWAY_S


def test_a_server_that_stays_away_is_named_and_not_waited_for_twice(
    passing_on: Misbehaving,
) -> None:
    waits: list[float] = []
    reading = Reading(passing_on.url, waits.append)
    real = passing_on.answering

    def answer_once(path: str, parameters: Mapping[str, str]) -> Answer:
        is_last = len(passing_on.asked) > 1
        if is_last:
            passing_on.end()
        return real(path, parameters)._replace(cut=is_last)

    passing_on.answering = answer_once
    for _ in range(2):
        assert not reading.read()["sample"]
        assert isinstance(reading.collector.failure, UnreachableError)
    assert len(waits) == RETRIES, "a pass of the service waits once"
    passing_on.begin()
