"""What the doctor says of a Prometheus with clusters whose nodes and targets have equal names."""

from collections.abc import Iterator, Mapping

import pytest

from collectors.doctor import CheckRow, diagnose
from collectors.prometheus.client import PrometheusClient
from fallow.settings.collectors import PrometheusSettings
from tests.field.history import DCGM, KSM, Scrape, scrape_gpu, scrape_node
from tests.field.site import FREE, ago
from tests.servers.prometheus import blocks, serving

pytestmark = pytest.mark.xdist_group("prometheus")
GPU = {"gpu": "0", "UUID": "GPU-0", "Hostname": "node-1", "modelName": "NVIDIA A10G"}


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Serve clusters x and y; the exporter of y is down, and `up` of z has no cluster."""
    series = [
        *(
            one
            for cluster in "xyz"
            for one in scrape_node("node-1", 1, target={**KSM, "cluster": cluster}, since=1)
        ),
        *scrape_gpu({**GPU, "cluster": "x"}, FREE, since=1),
        *scrape_gpu({**GPU, "UUID": "GPU-2", "cluster": "z"}, FREE, since=1),
        Scrape("up", {**DCGM, "cluster": "x"}, 1, since=1),
        Scrape("up", {**DCGM, "cluster": "y"}, 0, since=1),
    ]
    text = "".join(scrape.write("two") for scrape in series)
    with serving(blocks(f"{text}# EOF\n", tmp_path_factory.mktemp("two"))) as address:
        yield address


def _diagnose(url: str, selector: str) -> Mapping[str, CheckRow]:
    client = PrometheusClient(PrometheusSettings(url=url, selector=selector))
    rows = diagnose(client, ago(1 / 60), matchers=selector)
    client.close()
    return {row.check: row for row in rows}


def test_a_target_that_is_down_is_named_with_its_cluster(url: str) -> None:
    rows = _diagnose(url, "")
    assert rows["clusters"].status == "bad"
    assert rows["exporters up"].finding == "1 exporter down: 10.0.0.1 of y"


def test_a_node_is_silent_though_another_cluster_has_one_of_its_name(url: str) -> None:
    rows = _diagnose(url, "")
    assert rows["silent nodes"].finding == "1 node with GPUs but no telemetry: node-1 of y"


def test_a_selector_narrows_to_the_targets_of_its_cluster(url: str) -> None:
    rows = _diagnose(url, 'cluster="x"')
    assert (rows["exporters up"].status, rows["silent nodes"].status) == ("ok", "ok")
    assert rows["silent nodes"].finding == "all 1 nodes with GPUs have telemetry"


def test_targets_that_the_selector_does_not_find_are_not_called_up(url: str) -> None:
    row = _diagnose(url, 'cluster="z"')["exporters up"]
    assert (row.status, row.finding) == ("warn", "no `up` series for the exporters' jobs")
