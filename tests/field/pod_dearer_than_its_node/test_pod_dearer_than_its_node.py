"""Who holds a node's only GPU pays the node, once."""

from typing import Any

from tests.field.site import (
    END,
    HOURS,
    Site,
    ago,
    build_node,
    build_pod,
    label_instance,
    list_lines,
    write_time,
)  # fmt: skip


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
    window = ("--window", f"{write_time(ago(HOURS))}/{write_time(END)}")
    for by in ("workload", "node"):
        (row,) = site.read_json("spend", "--by", by, *window)["spend"]
        assert (row["gpu_hours"], row["usd"]) == (6.0, 3.16)
    (gpu,) = site.read_json("spend", "--by", "workload", "--view", "gpu", *window)["spend"]
    assert 0 < gpu["usd"] <= 3.16
