"""A real Prometheus discovers and scrapes the door, and Fallow reads it."""

import json
import subprocess
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from collectors.prometheus.collector import PrometheusCollector
from fallow.settings import load
from fallow.window import Window
from simulator.exporters.quirks import Quirks
from simulator.exporters.server import ExporterServer
from tests.servers import prometheus
from tests.simulator.exporters import fleet

pytestmark = pytest.mark.xdist_group("prometheus")
PATIENCE_S = 60
CONFIG = """\
global: {{scrape_interval: 1s, scrape_timeout: 1s}}
scrape_configs:
- job_name: fleet
  honor_labels: false
  http_sd_configs:
  - url: {url}/sd
    refresh_interval: 5s
"""
QUIRKS = ["duplicate-scrapes:rate=1", "dcgm-4.6-names:rate=0.4", "hostname-lower:rate=0.4"]


def asked(url: str, query: str) -> list[dict[str, Any]]:
    address = f"{url}/api/v1/query?{urllib.parse.urlencode({'query': query})}"
    with urllib.request.urlopen(address, timeout=10) as answer:
        found: list[dict[str, Any]] = json.load(answer)["data"]["result"]
        return found


@pytest.fixture(scope="module")
def scraping(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    prometheus.binary("prometheus")
    folder = tmp_path_factory.mktemp("scraping") / "data"
    with ExporterServer(fleet.World(), Quirks.of(QUIRKS, 1)) as door:
        config = CONFIG.format(url=door.url)
        with prometheus.serving(folder, configured=config) as url:
            deadline = time.monotonic() + PATIENCE_S
            wanted = len(door.targets())
            nap = threading.Event()
            ready = "up == 1 and count_over_time(up[1m]) >= 3"
            while len(asked(url, ready)) < wanted and time.monotonic() < deadline:
                nap.wait(0.2)
            yield url


def test_every_target_is_up_and_every_line_was_read(scraping: str) -> None:
    jobs = {r["metric"]["job"] for r in asked(scraping, "up == 1")}
    assert jobs == {"dcgm-exporter", "kube-state-metrics", "cadvisor", "inference", "training"}
    assert asked(scraping, "up == 0") == []
    power = asked(scraping, '{__name__=~"DCGM_FI_DEV_(POWER_USAGE|BOARD_POWER_WATTS)"}')
    assert len(power) == len(fleet.DEVICES)
    bounds = asked(scraping, 'vllm:e2e_request_latency_seconds_bucket{pod="bert-embed-5f7-abcde"}')
    assert {r["metric"]["le"]: r["value"][1] for r in bounds} == {
        "0.5": "600", "1.0": "1080", "+Inf": "1200",
    }  # fmt: skip
    pace = asked(scraping, "trainer_throughput_tokens_per_sec")
    assert [(r["metric"]["pod"], r["value"][1]) for r in pace] == [
        ("llm-pretrain-worker-0", "12000")
    ]


def test_the_workload_is_exported_because_the_target_has_a_pod_of_its_own(scraping: str) -> None:
    found = asked(scraping, f'DCGM_FI_DEV_FB_USED{{UUID="{fleet.DEVICES[4].uuid}"}}')
    assert len(found) == 1
    words = found[0]["metric"]
    assert words["exported_pod"] == "jupyter-alice-0"
    assert words["pod"].startswith("dcgm-exporter-")
    assert found[0]["value"][1] == "2048"


def test_fallow_reads_devices_owners_and_inventory_from_it(scraping: str) -> None:
    settings = load(environ={}, flags={"prometheus.url": scraping}).settings
    now = datetime.now(UTC)
    # Fallow leaves the last moments to settle; these have.
    later = now + timedelta(minutes=10)
    collector = PrometheusCollector(settings.prometheus, "sim", lambda: later)
    window = Window(now - timedelta(minutes=2), now)
    rows: dict[str, list[dict[str, Any]]] = {}
    for batch in collector.collect(window):
        rows.setdefault(batch.table, []).extend(batch.rows.to_pylist())
    assert collector.failure is None
    owners = {r["device"]: r["pod"] for r in rows["sample"]}
    assert len(owners) == len(fleet.DEVICES)
    assert owners[fleet.DEVICES[0].uuid] == "llm-pretrain-worker-0"
    assert owners[fleet.DEVICES[7].uuid] is None
    pods = {r["pod"]: r for r in rows["pod"]}
    assert pods["fraud-scorer-6d8f7c9b5-x2k4q"]["workload_kind"] == "Deployment"
    assert {r["node"] for r in rows["node"]} == {fleet.A, fleet.B, fleet.C}


def test_a_file_of_targets_serves_a_prometheus_too(tmp_path: Path) -> None:
    prometheus.binary("promtool")
    with ExporterServer(fleet.World()) as door:
        door.write_targets(tmp_path / "targets.json")
        config = tmp_path / "prometheus.yml"
        config.write_text(
            "scrape_configs: [{job_name: f, file_sd_configs: "
            f"[{{files: ['{tmp_path}/targets.json']}}]}}]\n"
        )
        checked = subprocess.run(
            ["promtool", "check", "config", str(config)], capture_output=True, check=False
        )
        assert checked.returncode == 0, checked.stderr
