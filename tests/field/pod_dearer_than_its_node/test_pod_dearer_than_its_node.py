"""Who holds a node's only GPU pays the node, once."""

from typing import Any

from tests.field.site import (
    WINDOW,
    Site,
    build_node,
    build_pod,
    label_instance,
    list_lines,
)


def test_a_pod_costs_what_its_node_costs(site: Site) -> None:
    labels = label_instance("g4dn.xlarge")
    pod = build_pod("infer-0", "a", gpus=1, owner=("Job", "infer"))
    assert site.import_objects(build_node("a", 1, labels=labels), pod).code == 0
    held: dict[str, Any] = {
        "pod": "infer-0",
        "namespace": "ml",
        "container": "c",
    }
    assert site.import_lines(*list_lines("GPU-0", "a", modelName="Tesla T4", **held)).code == 0
    for by in ("workload", "node"):
        (row,) = site.read_json("spend", "--by", by, *WINDOW)["spend"]
        assert (row["gpu_hours"], row["usd"]) == (6.0, 3.16)
    (gpu,) = site.read_json("spend", "--by", "workload", "--view", "gpu", *WINDOW)["spend"]
    assert 0 < gpu["usd"] <= 3.16
