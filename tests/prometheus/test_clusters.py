"""One Prometheus with two clusters: refused with the selector to set, and read with it."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from runtime.cli import run
from tests.servers import prometheus as server

pytestmark = pytest.mark.xdist_group("prometheus-clusters")


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Serve GPU 0 of the node `gpu-1` of two clusters, the last hour of each.

    The commands read the clock of this machine, and `doctor` only what is minutes old.
    """
    end = datetime.now(UTC).replace(second=0, microsecond=0) - timedelta(minutes=2)
    times = [(end - timedelta(minutes=k)).timestamp() for k in range(60, 0, -1)]
    metric = "DCGM_FI_DEV_GPU_UTIL"
    lines = [
        f'{metric}{{gpu="0",UUID="GPU-{name}",Hostname="gpu-1",cluster="{name}"}} 50 {t}'
        for name in ("east", "west")
        for t in times
    ]
    folder = tmp_path_factory.mktemp("clusters")
    text = "\n".join(["# TYPE DCGM_FI_DEV_GPU_UTIL gauge", *lines, "# EOF", ""])
    with server.serving(server.blocks(text, folder)) as address:
        yield address


@pytest.mark.parametrize(
    "words", [("import", "prometheus", "--since", "2h", "--url"), ("scan", "--prometheus")]
)
def test_two_clusters_are_refused_with_the_selector_to_set(
    words: tuple[str, ...], url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*words, url, "--home", str(tmp_path)]) == 2
    error = capsys.readouterr().err
    assert "2 clusters (cluster: east, west)" in error
    assert """FALLOW_PROMETHEUS__SELECTOR='cluster="east"'""" in error


def test_a_selector_reads_one_cluster(
    url: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert run(["doctor", "--prometheus", url, "--home", str(tmp_path)]) == 1
    assert "2 clusters" in capsys.readouterr().out
    monkeypatch.setenv("FALLOW_PROMETHEUS__SELECTOR", 'cluster="east"')
    words = ["import", "prometheus", "--since", "2h", "--url", url, "--home", str(tmp_path)]
    assert run([*words, "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["import"][0]["devices"] == 1
