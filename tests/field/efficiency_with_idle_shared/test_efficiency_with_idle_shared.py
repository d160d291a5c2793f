"""Sharing unallocated dollars changes dollars, and no share of hours."""

import pytest

from tests.field.site import (
    FREE,
    WINDOW,
    Site,
    build_node,
    build_pod,
    list_lines,
)

pytestmark = pytest.mark.long


def test_shared_dollars_change_no_utilisation(site: Site) -> None:
    site.set_price(2)
    pod = build_pod("busy-0", "a", gpus=1, owner=("Job", "busy"), labels={"team": "red"})
    assert site.import_objects(build_node("a", 2), pod).code == 0
    lines = list_lines("GPU-0", "a", pod="busy-0", namespace="ml", container="c")
    lines += list_lines("GPU-1", "a", gpu=1, values=FREE)
    assert site.import_lines(*lines).code == 0
    words = ("spend", "--by", "team", *WINDOW)
    alone = {row["team"]: row for row in site.read_json(*words)["spend"]}["red"]
    spend = site.read_json(*words, "--share-unallocated")
    shared = {row["team"]: row for row in spend["spend"]}["red"]
    assert (alone["usd"], shared["usd"], spend["total"]["usd"]) == (12.0, 24.0, 24.0)
    for column in ("gpu_hours", "busy_pct", "effective_pct"):
        assert alone[column] == shared[column]
    assert shared["busy_pct"] == 100.0
