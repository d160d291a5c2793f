"""Two clusters whose pods have one uid, as after a restore: each has its own annotations."""

from typing import Any

import pytest

from tests.field.conftest import site
from tests.field.site import (
    END,
    HOURS,
    IDLE,
    Site,
    ago,
    build_node,
    build_pod,
    list_lines,
    write_dump,
    write_lines,
    write_time,
)

__all__ = ["site"]  # its fixture
JOB: dict[str, Any] = {
    "apiVersion": "batch/v1", "kind": "Job", "spec": {"parallelism": 1},
    "metadata": {"name": "nb", "namespace": "ml", "uid": "uid-nb"},
}  # fmt: skip
IDLE_VALUES = {**IDLE, "DCGM_FI_DEV_POWER_USAGE": 50.0}


def feed(site: Site, cluster: str, annotations: dict[str, str]) -> None:
    pod = build_pod("nb", "n", gpus=1, owner=("Job", "nb"), annotations=annotations)
    pod["metadata"]["uid"] = "same"
    pod["metadata"]["ownerReferences"][0] |= {"uid": "uid-nb"}
    lines = list_lines(f"GPU-{cluster}", "n", values=IDLE_VALUES, pod="nb", namespace="ml")
    dump = write_dump(site.folder / f"{cluster}.json", [build_node("n", 1), pod, JOB])
    table = write_lines(site.folder / f"{cluster}.txt", lines)
    for words in (("kubectl", dump), ("exposition", table, "--interval", "5m")):
        assert site.run("--cluster", cluster, "import", *words).code == 0


@pytest.mark.parametrize("kept", ["a", "z"])
def test_an_annotation_protects_in_its_cluster_alone(site: Site, kept: str) -> None:
    for cluster in "az":
        feed(site, cluster, {"fallow.dev/kept": "true"} if cluster == kept else {})
    window = f"{write_time(ago(HOURS))}/{write_time(END)}"
    rows = site.read_json("analyze", "idle", "--window", window)["findings"]
    assert {row["subject"]["cluster"] for row in rows if row["verdict"] == "idle"} == (
        {"a", "z"} - {kept}
    )
