"""A workload that several analyzers find saves at most what it costs."""

from typing import Any

import pytest

from tests.field.site import (
    FREE,
    IDLE,
    WINDOW,
    Site,
    build_node,
    build_pod,
    list_lines,
)

pytestmark = pytest.mark.long


def test_no_row_saves_more_than_it_costs(site: Site) -> None:
    site.set_price(2)
    pods = [build_pod("idle-0", "a", gpus=2, owner=("Job", "idle"))]
    pods += [build_pod("busy-0", "a", gpus=1, owner=("Job", "busy"))]
    assert site.import_objects(build_node("a", 4), *pods).code == 0
    idle: dict[str, Any] = {"values": IDLE, "pod": "idle-0", "namespace": "ml", "container": "c"}
    lines = [line for k in (0, 1) for line in list_lines(f"GPU-{k}", "a", gpu=k, **idle)]
    lines += list_lines("GPU-2", "a", gpu=2, pod="busy-0", namespace="ml", container="c")
    lines += list_lines("GPU-3", "a", gpu=3, values=FREE)
    assert site.import_lines(*lines).code == 0
    assert site.run("analyze", *WINDOW).code == 0

    spend = site.read_json("spend", "--by", "workload", *WINDOW)
    rows = {row["workload"].rpartition("/")[2]: row for row in spend["spend"]}
    assert {name: row["usd"] for name, row in rows.items()} == {
        "idle": 24.0, "busy": 12.0, "(platform)": 12.0,
    }  # fmt: skip
    assert all((row["saves_usd"] or 0) <= row["usd"] for row in rows.values())
    assert rows["idle"]["saves_usd"] == 24.0
    assert not rows["busy"]["saves_usd"]
    sums = spend["reconciliation"]
    assert sums["wasted_usd"] == 36.0
    assert sums["of_waste_usd"] <= sums["wasted_usd"]
    assert spend["total"]["saves_usd"] <= spend["total"]["usd"]
