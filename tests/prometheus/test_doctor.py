"""What the doctor says of a real server, and of servers that lack something."""

import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from collectors.doctor import CheckRow, _estimate_interval, diagnose
from collectors.prometheus.client import PrometheusClient
from fallow.settings.collectors import PrometheusSettings
from runtime.cli import run
from tests.servers.misbehaving import NAMES, VECTOR, Answer, Misbehaving
from tests.servers.prometheus import END, SILENCE, serving

pytestmark = pytest.mark.xdist_group("prometheus")
Asking = Callable[..., PrometheusClient]
WHEN = datetime(2026, 11, 20, 12, tzinfo=UTC)


def looked(url: str, at: datetime, **settings: Any) -> dict[str, CheckRow]:
    client = PrometheusClient(PrometheusSettings(url=url, **settings))
    rows = diagnose(client, at, matchers=settings.get("selector", ""))
    client.close()
    assert all(row.next_step for row in rows if row.status == "bad")
    return {row.check: row for row in rows}


@pytest.fixture(scope="module")
def rows(prometheus_with_history: str) -> Mapping[str, CheckRow]:
    return looked(prometheus_with_history, END)


@pytest.mark.parametrize(
    ("check", "status", "words"),
    [
        ("server", "ok", ["answers: Prometheus"]),
        ("clock", "ok", ["0 s apart"]),
        ("exporters", "ok", ["dcgm-exporter", "classic names"]),
        ("labels", "ok", ["exported_pod", "on 5 of 19 series", "12 of 19 series name a pod"]),
        ("nodes", "ok", ["2 nodes", "hostname on 11", "Hostname on 8"]),
        ("mig", "ok", ["9 x 1g.5gb, 1 x 2g.10gb, 1 x 3g.20gb"]),
        ("signals of NVIDIA H100 80GB HBM3", "warn", ["8 devices", "without sm_active"]),
        (
            "signals of NVIDIA A100-SXM4-40GB",
            "warn",
            ["11 devices", "without energy_mj; only DCGM's blanks in sm_active"],
        ),
        ("interval", "warn", ["a scrape every 2m"]),
        ("conflicts", "warn", ["1 GPU", "profiling says 0 while GPU_UTIL"]),
        ("exporters up", "ok", ["every target of dcgm-exporter is up"]),
        ("silent nodes", "ok", ["all 2 nodes"]),
        ("inventory", "ok", ["kube-state-metrics", "honorLabels: true"]),
        ("owners", "ok", ["name their owners"]),
        ("host", "ok", ["cAdvisor"]),
        ("history", "ok", ["1 day"]),
    ],
)
def test_what_a_real_server_has(
    rows: Mapping[str, CheckRow], check: str, status: str, words: list[str]
) -> None:
    assert rows[check].status == status, rows[check]
    for word in words:
        assert word in rows[check].finding


@pytest.mark.parametrize(
    ("samples", "seconds"),
    [(9, 60), (10, 60), (11, 60), (20, 30), (40, 15), (5, 120), (1, 300), (0, 600), (100, 6)],
)
def test_an_interval_is_one_that_people_configure(samples: float, seconds: float) -> None:
    """Of a minute's scrapes nine, ten or eleven are in ten minutes."""
    assert _estimate_interval(samples) == seconds


def test_what_is_missing_is_told_as_the_line_to_add(rows: Mapping[str, CheckRow]) -> None:
    lines = rows["signals of NVIDIA H100 80GB HBM3"].next_step
    assert lines == (
        "add to dcgm-exporter's counters CSV: DCGM_FI_PROF_SM_ACTIVE, gauge, "
        "The ratio of cycles an SM has at least 1 warp assigned."
    )
    lines = rows["signals of NVIDIA A100-SXM4-40GB"].next_step
    assert "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION, counter, " in lines
    assert "GPU_UTIL" not in lines  # MIG instances have none, whatever is configured
    line, _, blank = lines.partition(": ")[2].partition("; ")
    assert line.count(",") == 2  # dcgm-exporter wants exactly two commas
    assert blank.startswith("blank: not supported")


def test_a_node_whose_exporter_is_silent_is_named(prometheus_with_history: str) -> None:
    rows = looked(prometheus_with_history, SILENCE[0] + timedelta(minutes=20))
    assert rows["silent nodes"].status == "bad"
    assert "1 node with GPUs but no telemetry: gpu-node-a01" in rows["silent nodes"].finding


def test_a_selector_narrows_every_check(prometheus_with_history: str) -> None:
    rows = looked(prometheus_with_history, END, selector='job="kubelet"')
    assert rows["telemetry"].status == "bad"


def test_before_any_history_there_is_nothing_and_a_step_to_take(
    prometheus_with_history: str,
) -> None:
    rows = looked(prometheus_with_history, END - timedelta(days=30))
    assert rows["telemetry"].status == "bad"
    assert "dcgm-exporter" in rows["telemetry"].next_step
    assert rows["history"].status == "warn"


def test_a_server_without_gpus_or_build_information(server: Misbehaving, asking: Asking) -> None:
    now = datetime.now(UTC).timestamp()

    def answer(path: str, parameters: Mapping[str, str]) -> Answer:
        if path.endswith("buildinfo"):
            return Answer(404, b"")
        if path.endswith("values"):
            return Answer(200, NAMES)
        if parameters["query"] == "time()":
            body = f'{{"status":"success","data":{{"resultType":"scalar","result":[{now},"1"]}}}}'
            return Answer(200, body.encode())
        return Answer(200, VECTOR)

    server.answering = answer
    rows = {row.check: row for row in diagnose(asking(), WHEN)}
    assert rows["server"].finding.endswith("the query API (no build information)")
    assert rows["clock"].status == "ok"
    assert rows["telemetry"].status == "bad"
    assert rows["inventory"].status == "warn"


@pytest.mark.parametrize(("pods", "words"), [(3, "name no container"), (None, "name no pod")])
def test_a_host_signal_that_names_no_container_is_a_warning(
    server: Misbehaving, asking: Asking, pods: int | None, words: str
) -> None:
    gauge, counter = "DCGM_FI_DEV_GPU_UTIL", "container_cpu_usage_seconds_total"
    device = {"__name__": gauge, "UUID": "GPU-0", "Hostname": "n", "modelName": "NVIDIA A10G"}

    def answer(path: str, parameters: Mapping[str, str]) -> Answer:
        query, rows = parameters.get("query", ""), []
        if gauge in query:
            rows = [{"metric": device, "value": [WHEN.timestamp(), "0"]}]
        elif pods and "pod!=" in query:
            rows = [{"metric": {}, "value": [WHEN.timestamp(), f"{pods}"]}]
        data = {"resultType": "vector", "result": rows}
        body = {"data": [gauge, counter] if path.endswith("values") else data}
        return Answer(200, json.dumps({"status": "success", **body}).encode())

    server.answering = answer
    row = next(row for row in diagnose(asking(), WHEN) if row.check == "host")
    assert (row.status, words in row.finding) == ("warn", True), row


def test_clocks_that_are_apart_are_bad(server: Misbehaving, asking: Asking) -> None:
    stamp = WHEN.timestamp()
    body = f'{{"status":"success","data":{{"resultType":"scalar","result":[{stamp},"{stamp}"]}}}}'
    server.answering = lambda path, asked: Answer(
        200,
        NAMES
        if path.endswith("values")
        else (body.encode() if asked.get("query") == "time()" else VECTOR),
    )
    ours = WHEN + timedelta(seconds=31)
    rows = {row.check: row for row in diagnose(asking(), WHEN, clock=lambda: ours)}
    assert (rows["clock"].status, rows["clock"].next_step) == ("bad", "synchronise both with NTP")
    assert "31 s apart" in rows["clock"].finding


def test_a_real_server_without_gpus_is_told_apart_from_one_that_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FALLOW_HOME", str(tmp_path / "home"))
    (tmp_path / "data").mkdir()
    with serving(tmp_path / "data") as url:
        assert run(["doctor", "--prometheus", url, "-o", "json"]) == 1
        checks = {c["check"]: c["status"] for c in json.loads(capsys.readouterr().out)["checks"]}
        assert (checks["server"], checks["telemetry"]) == ("ok", "bad")
        assert run(["scan", "--prometheus", url, "--since", "1d"]) == 1
    answer = capsys.readouterr()
    assert answer.out == ""
    assert "has no GPU series between" in answer.err
