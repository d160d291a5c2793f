"""What could be saved of a window says which of its hours nobody analysed."""

from datetime import timedelta
from typing import Any

import pytest

from tests.field.site import END, IDLE, Site, build_node, build_pod, list_lines, write_time

pytestmark = pytest.mark.long  # tests/dashboards/test_parts_of_findings.py: the same by function


def test_a_longer_window_than_was_analysed_says_at_least(site: Site) -> None:
    site.set_price(2)
    pod = build_pod("idle-0", "a", gpus=2, owner=("Job", "idle"), born=24 * 9)
    past = 24 * 9
    assert site.import_objects(build_node("a", 2, born=past), pod).code == 0
    held: dict[str, Any] = {"values": IDLE, "pod": "idle-0", "namespace": "ml", "container": "c"}
    lines = [
        line for k in (0, 1) for line in list_lines(f"GPU-{k}", "a", gpu=k, since=past, **held)
    ]
    assert site.import_lines(*lines).code == 0
    assert site.run("analyze", "idle").code == 0
    for days, usd in ((6, 576.0), (9, 864.0)):
        window = f"{write_time(END - timedelta(days=days))}/{write_time(END)}"
        spend = site.read_json("spend", "--window", window)
        sums = spend["reconciliation"]
        missed = sums["missed_hours"]
        # The seven days that are analysed end with the present hour, or with the one before.
        assert missed in ((0,) if days == 6 else (48, 49))
        assert (spend["total"]["usd"], sums["saves_usd"]) == (usd, usd - 4 * missed)
        ran = site.run("spend", "--window", window)
        assert (f"At least: no analyzer judged {missed} of 216 h" in ran.err) == bool(missed)
