"""A Job on two GPUs that the exporter does not show is unknown; the idle ones are not its own."""

from datetime import timedelta

import pytest

from fallow.settings import load
from fallow.window import Window
from tests.field.site import BUSY, END, Site, build_node, build_pod, list_lines
from warehouse.coverage import count_unseen_gpus
from warehouse.lake import Warehouse

IDLE = {
    **BUSY,
    "DCGM_FI_DEV_GPU_UTIL": 0.0,
    "DCGM_FI_PROF_GR_ENGINE_ACTIVE": 0.0,
    "DCGM_FI_DEV_POWER_USAGE": 71.0,
}
JOB = {"apiVersion": "batch/v1", "kind": "Job", "name": "sim", "uid": "job-sim", "controller": True}


@pytest.fixture
def hidden(site: Site) -> Site:
    """Return a site: gpu-b has 6 GPUs and shows 4; `ml/train` holds two of these."""
    sim = build_pod("sim-0", "gpu-b", gpus=2, namespace="physics")
    sim["metadata"]["ownerReferences"] = [JOB]
    train = build_pod("train-0", "gpu-b", gpus=2)
    assert site.import_objects(build_node("gpu-a"), build_node("gpu-b", 6), sim, train).code == 0
    lines = [line for n in range(2) for line in list_lines(f"GPU-a{n}", "gpu-a", gpu=n)]
    for n in range(4):
        if n < 2:
            lines += list_lines(
                f"GPU-b{n}", "gpu-b", gpu=n, namespace="ml", pod="train-0", container="c"
            )
        else:
            lines += list_lines(f"GPU-b{n}", "gpu-b", gpu=n, values=IDLE)
    assert site.import_lines(*lines).code == 0
    return site


def test_nothing_is_judged_by_elimination(hidden: Site) -> None:
    findings = hidden.read_json("analyze")["findings"]
    assert not [f for f in findings if f["analyzer"] == "idle"]
    rows = hidden.query(
        "SELECT namespace, state, round(sum(gpu_seconds) / 3600, 1) AS hours FROM ledger"
        f" WHERE node = 'gpu-b' AND bucket < TIMESTAMP '{END:%Y-%m-%d %H:%M}'"
        " GROUP BY ALL ORDER BY ALL"
    )
    hours = {(row["namespace"], row["state"]): row["hours"] for row in rows}
    assert hours == {("", "free"): 12.0, ("ml", "productive"): 12.0, ("physics", "unknown"): 12.0}
    held = hidden.query("SELECT DISTINCT device FROM allocation WHERE namespace = 'physics'")
    assert {row["device"] for row in held} == {"gpu-b/untracked4", "gpu-b/untracked5"}
    doctor = hidden.run("doctor").out
    assert "8 GPUs paid, 6 seen; gpu-b: 2 without telemetry, held by physics/sim" in doctor
    settings = load(environ={}, flags={"home": hidden.home}).settings
    with Warehouse.open(settings) as lake:
        assert count_unseen_gpus(lake, Window(END - timedelta(hours=6), END)) == 2
