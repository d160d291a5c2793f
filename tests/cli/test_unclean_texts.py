"""A text that somebody wrote to do damage costs its own object, and doctor names it."""

import json
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from fallow.settings import load
from runtime.service.metrics import SelfMetrics
from tests.cli.conftest import Fallow
from warehouse.lake import Warehouse

HAMI = "hami.io/vgpu-devices-allocated"
NOW = datetime.now(UTC).replace(microsecond=0)
BEGAN = NOW - timedelta(hours=2)


def expose(*devices: str) -> str:
    """Return an hour of devices, the first of them of the pod `honest`."""
    lines = []
    for second in range(0, 3600, 30):
        at = int(BEGAN.timestamp() + second) * 1000
        for n, device in enumerate(devices):
            pod = 'namespace="team",pod="honest",container="c"' if n == 0 else 'pod=""'
            labels = f'UUID="{device}",modelName="NVIDIA A100-SXM4-80GB",Hostname="n1",{pod}'
            lines.append(f"DCGM_FI_DEV_GPU_UTIL{{{labels}}} 50 {at}")
    return "\n".join([*lines, ""])


def list_pod(name: str, *, gpus: int = 0, hami: str = "") -> dict[str, Any]:
    amounts = {"requests": {"nvidia.com/gpu": str(gpus)}} if gpus else {}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": "team",
            "uid": f"uid-{name}",
            "creationTimestamp": f"{BEGAN:%Y-%m-%dT%H:%M:%SZ}",
            "annotations": {HAMI: hami} if hami else {},
        },
        "spec": {"nodeName": "n1", "containers": [{"name": "c", "resources": amounts}]},
        "status": {"phase": "Running", "startTime": f"{BEGAN:%Y-%m-%dT%H:%M:%SZ}"},
    }


@pytest.fixture
def run(fallow: Fallow, tmp_path: Path) -> Callable[..., Any]:
    """Run a command for the cluster `c` in one home, and return its document."""

    def call(*words: str | Path, codes: Sequence[int] = (0,)) -> Any:
        more = () if words[0] == "doctor" else ("--cluster", "c")
        ran = fallow(*words, "-o", "json", "--home", tmp_path / "home", *more)
        assert ran.code in codes, ran.err
        return json.loads(ran.out)

    return call


def read_ledger(run: Callable[..., Any]) -> Any:
    return run(
        "warehouse", "query",
        "SELECT device, state, workload, round(sum(gpu_seconds)) AS s FROM ledger GROUP BY ALL"
        " ORDER BY ALL",
    )["rows"]  # fmt: skip


@pytest.mark.parametrize("pod", ["bad\\nname", "p" * 300])
def test_a_device_of_a_pod_with_an_unclean_name_is_paid_and_of_an_unknown_owner(
    run: Callable[..., Any], tmp_path: Path, pod: str
) -> None:
    text = expose("GPU-0", "GPU-1").replace('pod=""', f'namespace="team",pod="{pod}",container="c"')
    (tmp_path / "hour.prom").write_text(text)
    run("import", "exposition", tmp_path / "hour.prom")
    spent = {
        (row["device"], row["workload"]): row["s"]
        for row in read_ledger(run) if row["state"] == "productive"
    }  # fmt: skip
    assert spent == {("GPU-0", "honest"): 3600, ("GPU-1", "(unknown)"): 3600}
    checks = {row["check"]: row for row in run("doctor", codes=(0, 1))["checks"]}
    assert "team/GPU-1 (pod: " in checks["rejected sample"]["finding"]


def test_pods_with_unclean_names_that_share_a_device_are_paid_and_counted(
    run: Callable[..., Any], tmp_path: Path
) -> None:
    lines = expose("GPU-0")
    for device in ("GPU-0", "GPU-1"):
        for pod in ("bad\\none", "bad\\ntwo"):
            lines += expose(device).replace('pod="honest"', f'pod="{pod}"')
    (tmp_path / "hour.prom").write_text(lines)
    run("import", "exposition", tmp_path / "hour.prom")
    spent = {
        (row["device"], row["workload"]): row["s"]
        for row in read_ledger(run) if row["state"] == "productive"
    }  # fmt: skip
    # A pod that no inventory has gets what others leave of a device.
    assert spent == {("GPU-0", "honest"): 3600, ("GPU-1", "(unknown)"): 3600}
    sql = "SELECT name, sum(count)::INT AS n FROM rejection WHERE kind = 'holding' GROUP BY ALL"
    counted = {row["name"]: row["n"] for row in run("warehouse", "query", sql)["rows"]}
    assert counted == {"GPU-0": 240, "GPU-1": 240}


def test_an_annotation_with_nul_of_a_pod_without_gpus_costs_its_devices_alone(
    run: Callable[..., Any], tmp_path: Path
) -> None:
    (tmp_path / "hour.prom").write_text(expose("GPU-0"))
    run("import", "exposition", tmp_path / "hour.prom")
    honest = list_pod("honest", gpus=1)
    ledgers = []
    for pods in ([honest], [honest, list_pod("evil", hami="GPU-\x00c,NVIDIA,1,100:")]):
        dump = {"apiVersion": "v1", "kind": "List", "items": pods}
        (tmp_path / "dump.json").write_text(json.dumps(dump))
        run("import", "kubectl", tmp_path / "dump.json")
        ledgers.append(read_ledger(run))
    assert ledgers[0] == ledgers[1] != []
    checks = {row["check"]: row for row in run("doctor", codes=(0, 1))["checks"]}
    assert "team/evil (" in checks["rejected pod"]["finding"]
    settings = load(environ={}, flags={"home": tmp_path / "home", "cluster": "c"}).settings
    metrics = SelfMetrics()
    with Warehouse.open(settings) as warehouse:
        metrics.record_fleet(warehouse, "c", NOW)
    assert b'fallow_rejected_objects{kind="pod"} 1.0' in metrics.text()


def test_a_label_with_nul_of_an_exporter_costs_its_device_alone(
    run: Callable[..., Any], tmp_path: Path
) -> None:
    (tmp_path / "hour.prom").write_text(expose("GPU-0", "GPU-1", "GPU-9\x00z"))
    run("import", "exposition", tmp_path / "hour.prom")
    assert {row["device"] for row in read_ledger(run)} == {"GPU-0", "GPU-1"}
    sql = "SELECT kind, name, field, source, count FROM rejection"
    assert run("warehouse", "query", sql)["rows"] == [
        {
            "kind": "sample",
            "name": "GPU-9\\x00z",
            "field": "device",
            "source": "import",
            "count": 120,
        }
    ]
