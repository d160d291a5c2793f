"""What could be saved does not grow with the window that is asked about."""

from typing import Any

import pytest

from tests.field.site import END, IDLE, Site, build_node, build_pod, list_lines, write_time

pytestmark = pytest.mark.long
END_TIME = write_time(END)


@pytest.mark.parametrize("window", ["24h", "7d", "30d"])
def test_a_longer_window_has_the_same_savings(site: Site, window: str) -> None:
    site.set_price(2)
    pod = build_pod("idle-0", "a", gpus=2, owner=("Job", "idle"))
    assert site.import_objects(build_node("a", 2, born=6), pod).code == 0
    held: dict[str, Any] = {"values": IDLE, "pod": "idle-0", "namespace": "ml", "container": "c"}
    lines = [line for k in (0, 1) for line in list_lines(f"GPU-{k}", "a", gpu=k, **held)]
    assert site.import_lines(*lines).code == 0
    assert site.run("analyze", "idle", "--window", window, "--until", END_TIME).code == 0
    total = site.read_json("spend", "--window", window, "--until", END_TIME)["total"]
    assert (total["usd"], total["saves_usd"], total["gpu_hours"]) == (24.0, 24.0, 12.0)
