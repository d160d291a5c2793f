"""Missing scrapes make hours unknown, and none of them negative."""

from typing import Any

from tests.field.site import (
    IDLE,
    WINDOW,
    Site,
    build_node,
    build_pod,
    list_lines,
)


def test_states_are_never_negative_and_sum_to_what_is_paid(site: Site) -> None:
    site.set_price(2)
    pod = build_pod("holder-0", "a", gpus=2, owner=("Job", "holder"))
    assert site.import_objects(build_node("a", 2), pod).code == 0
    held: dict[str, Any] = {"pod": "holder-0", "namespace": "ml", "container": "c"}
    lines = list_lines("GPU-0", "a", since=6, until=5, **held)
    lines += list_lines("GPU-0", "a", since=3, until=1, **held)[::2]
    lines += list_lines("GPU-1", "a", gpu=1, values=IDLE, until=1, **held)[::2]
    # The last hour is whole: whether a GPU is silent for long is known ten minutes later.
    lines += list_lines("GPU-0", "a", since=1, **held)
    lines += list_lines("GPU-1", "a", gpu=1, values=IDLE, since=1, **held)
    assert site.import_lines(*lines).code == 0
    spend = site.read_json("spend", "--by", "state", *WINDOW)
    rows = {row["state"]: row for row in spend["spend"]}
    assert all(row["gpu_hours"] >= 0 and row["usd"] >= 0 for row in rows.values())
    assert round(sum(row["gpu_hours"] for row in rows.values()), 6) == 12.0
    assert spend["total"]["usd"] == 24.0
    assert rows["unknown"]["gpu_hours"] >= 2.0
