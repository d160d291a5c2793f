"""A scan with a long step: the server thins, one sample of each stretch of the clock's grid."""

import json
from collections import defaultdict
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pytest

from collectors.prometheus.collector import PrometheusCollector
from dashboards.waste_report import Story
from fallow.settings import load
from fallow.window import Window
from runtime.operations.ingestion import scan
from tests.servers.misbehaving import Misbehaving
from tests.servers.prometheus import END, H100, HOURS, SILENCE

pytestmark = pytest.mark.xdist_group("prometheus")
Rows = Mapping[str, list[dict[str, Any]]]
WHOLE = Window(END - timedelta(hours=HOURS), END)
LATER = END + timedelta(hours=2)
STEP = timedelta(minutes=5)
FEW_PARTS = 0.01


def collect(
    url: str, window: Window, step: str = "5m", *, on_grid: bool = True
) -> tuple[PrometheusCollector, Rows]:
    flags = {"prometheus.url": url, "prometheus.step": step}
    settings = load(environ={}, flags=flags).settings.prometheus
    collector = PrometheusCollector(settings, "real", lambda: LATER, on_grid=on_grid)
    rows: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for batch in collector.collect(window):
        rows[batch.table] += batch.rows.to_pylist()
    assert collector.failure is None
    return collector, rows


@pytest.fixture(scope="module")
def thinned_rows(prometheus_with_history: str) -> Rows:
    return collect(prometheus_with_history, WHOLE)[1]


def test_each_value_is_the_newest_of_the_five_minutes_before_it(
    thinned_rows: Rows, past_rows: Rows
) -> None:
    raw: dict[str, tuple[list[datetime], list[float]]] = defaultdict(lambda: ([], []))
    for row in sorted(past_rows["sample"], key=lambda r: r["ts"]):
        if row["power_w"] is not None:
            raw[row["device"]][0].append(row["ts"])
            raw[row["device"]][1].append(row["power_w"])
    compared = 0
    for row in thinned_rows["sample"]:
        assert row["ts"].timestamp() % STEP.total_seconds() == 0
        assert row["interval_s"] == STEP.total_seconds()
        times, values = raw[row["device"]]
        place = int(np.searchsorted(np.array(times), row["ts"], "right")) - 1
        if place < 0:
            continue  # the newest sample came before the window
        assert timedelta(0) <= row["ts"] - times[place] < STEP
        assert row["power_w"] == values[place]
        compared += 1
    devices = len(raw)
    stretches = HOURS * 12 * devices
    silent = 8 * (SILENCE[1] - SILENCE[0]) / STEP
    assert compared == pytest.approx(stretches - silent, abs=2 * devices)


def test_a_silence_stays_a_gap(thinned_rows: Rows) -> None:
    first, last = (timestamp.replace(tzinfo=None) for timestamp in SILENCE)
    inside = [r for r in thinned_rows["sample"] if r["node"] == H100 and first <= r["ts"] < last]
    assert {r["ts"] - first for r in inside} <= {timedelta(0)}.union(
        timedelta(minutes=n) for n in range(5)
    )
    assert [r["target"] for r in thinned_rows["scrape"] if not r["up"]] == [H100]


@pytest.mark.parametrize(
    ("step", "on_grid", "is_thinned"),
    [("5m", True, True), ("5m", False, False), ("299s", True, False)],
)
def test_the_server_thins_only_for_a_scan_and_a_step_of_five_minutes(
    prometheus_with_history: str, step: str, on_grid: bool, is_thinned: bool
) -> None:
    window = Window(END - timedelta(hours=1), END)
    collector, rows = collect(prometheus_with_history, window, step, on_grid=on_grid)
    assert (collector.thinned_values > 0) == is_thinned
    assert is_thinned == all(r["ts"].timestamp() % 300 == 0 for r in rows["sample"])


def test_a_stretch_that_the_server_refuses_is_queried_in_halves(
    passing_on: Misbehaving, thinned_rows: Rows
) -> None:
    real = passing_on.answering

    def refuse_long(path: str, parameters: Mapping[str, str]) -> Any:
        seconds = float(parameters.get("end", 0)) - float(parameters.get("start", 0))
        if path.endswith("query_range") and seconds > 3600:
            answer = real("/api/v1/query", {"query": "x["})
            body = b'{"status":"error","errorType":"bad_data","error":"exceeded maximum points"}'
            return answer._replace(status=400, body=body)
        return real(path, parameters)

    passing_on.answering = refuse_long
    window = Window(END - timedelta(hours=4), END)
    rows = collect(passing_on.url, window)[1]
    expected = [r for r in thinned_rows["sample"] if r["ts"].replace(tzinfo=UTC) >= window.start]
    assert len(rows["sample"]) == len(expected)


@pytest.mark.slow
def test_a_thinned_scan_has_the_dollars_of_a_whole_one(prometheus_with_history: str) -> None:
    def tell(step: str) -> Story:
        words = {"prometheus.url": prometheus_with_history, "prices.usd_per_gpu_hour": "2"}
        settings = load(environ={}, flags={**words, "prometheus.step": step}).settings
        return scan.scan_prometheus(settings, since="6h", now=END, progress=lambda *_: None)

    thinned, whole = tell("5m"), tell("60s")
    assert any("one of every 5m was read" in note for note in thinned.notes)
    assert not any("was read" in note for note in whole.notes)
    dollars = {s.state: s.usd or Decimal() for s in whole.states}
    for state in thinned.states:
        assert float(state.usd or 0) == pytest.approx(float(dollars[state.state]), rel=FEW_PARTS)
    found = {(w.workload, w.kind, w.evidence) for w in whole.wastes}
    assert {(w.workload, w.kind, w.evidence) for w in thinned.wastes} == found


def test_a_scan_says_how_many_gpu_hours_have_no_owner(passing_on: Misbehaving) -> None:
    real = passing_on.answering
    settings = load(environ={}, flags={"prometheus.url": passing_on.url}).settings

    def scan_here() -> Story:
        return scan.scan_prometheus(settings, since="1h", now=END, progress=lambda *_: None)

    def hide_owners(path: str, parameters: Mapping[str, str]) -> Any:
        answer = real(path, parameters)
        if path.endswith("label/__name__/values"):
            names = [name for name in json.loads(answer.body)["data"] if "kube_" not in name]
            return answer._replace(body=json.dumps({"status": "success", "data": names}).encode())
        if "kube_" in str(parameters):
            empty = {"status": "success", "data": {"resultType": "vector", "result": []}}
            return answer._replace(body=json.dumps(empty).encode())
        return answer

    assert not any("owner" in note for note in scan_here().notes)
    passing_on.answering = hide_owners
    story = scan_here()
    held = sum(s.gpu_hours for s in story.states if s.state not in ("free", "stranded"))
    [note] = [note for note in story.notes if "owner" in note]
    assert note.startswith(f"The owner of {held:,.1f} GPU-hours is not known")
    assert "kube-state-metrics" in note
