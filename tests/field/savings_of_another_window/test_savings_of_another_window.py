"""What could be saved of a window says which of its hours nobody analysed."""

from datetime import timedelta
from typing import Any

import pytest

from tests.field.site import END, IDLE, Site, build_node, build_pod, list_lines, write_time

pytestmark = pytest.mark.long  # tests/dashboards/test_parts_of_findings.py: the same by function


def test_a_longer_window_than_was_analysed_says_at_least(site: Site) -> None:
    site.set_price(2)
    pod = build_pod("idle-0", "a", gpus=2, owner=("Job", "idle"))
    assert site.import_objects(build_node("a", 2, born=6), pod).code == 0
    held: dict[str, Any] = {"values": IDLE, "pod": "idle-0", "namespace": "ml", "container": "c"}
    lines = [line for k in (0, 1) for line in list_lines(f"GPU-{k}", "a", gpu=k, **held)]
    assert site.import_lines(*lines).code == 0
    judged = f"{write_time(END - timedelta(hours=2))}/{write_time(END)}"
    whole = f"{write_time(END - timedelta(hours=6))}/{write_time(END)}"
    assert site.run("analyze", "idle", "--window", judged).code == 0
    for window, usd, missed in ((judged, 8.0, 0), (whole, 24.0, 4)):
        spend = site.read_json("spend", "--window", window)
        sums = spend["reconciliation"]
        assert (spend["total"]["usd"], sums["saves_usd"]) == (usd, 8.0)
        assert sums["missed_hours"] == missed
        ran = site.run("spend", "--window", window)
        assert ("At least: no analyzer judged 4 of 6 h" in ran.err) == bool(missed)
