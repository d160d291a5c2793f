"""An hour has its free GPUs as a week has."""

import pytest

from tests.field.site import END, FREE, Site, ago, build_node, build_pod, list_lines, write_time

pytestmark = pytest.mark.long


@pytest.mark.parametrize("hours", [1, 2])
def test_a_short_window_has_its_free_hours(site: Site, hours: int) -> None:
    site.set_price(2)
    pod = build_pod("busy-0", "a", gpus=1, owner=("Job", "busy"))
    assert site.import_objects(build_node("a", 2), pod).code == 0
    lines = list_lines("GPU-0", "a", pod="busy-0", namespace="ml", container="c")
    lines += list_lines("GPU-1", "a", gpu=1, values=FREE)
    assert site.import_lines(*lines).code == 0
    window = f"{write_time(ago(hours))}/{write_time(END)}"
    rows = site.read_json("spend", "--by", "state", "--window", window)["spend"]
    free = next(row for row in rows if row["state"] == "free")
    assert (free["gpu_hours"], free["usd"]) == (1.0 * hours, 2.0 * hours)
