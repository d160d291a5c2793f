"""Missing scrapes make hours unknown, and none of them negative."""

from typing import Any

from tests.field.site import (
    END,
    HOURS,
    IDLE,
    Site,
    ago,
    build_node,
    build_pod,
    list_lines,
    write_time,
)


def test_states_are_never_negative_and_sum_to_what_is_paid(site: Site) -> None:
    (site.folder / "fallow.yaml").write_text("prices: {usd_per_gpu_hour: 2}\n")
    pod = build_pod("holder-0", "a", gpus=2, owner=("Job", "holder"))
    assert site.import_objects(build_node("a", 2), pod).code == 0
    held: dict[str, Any] = {"pod": "holder-0", "namespace": "ml", "container": "c"}
    lines = list_lines("GPU-0", "a", since=6, until=5, **held)
    lines += list_lines("GPU-0", "a", since=3, **held)[::2]
    lines += list_lines("GPU-1", "a", gpu=1, values=IDLE, **held)[::2]
    assert site.import_lines(*lines).code == 0
    window = ("--window", f"{write_time(ago(HOURS))}/{write_time(END)}")
    spend = site.read_json("spend", "--by", "state", *window)
    rows = {row["state"]: row for row in spend["spend"]}
    assert all(row["gpu_hours"] >= 0 and row["usd"] >= 0 for row in rows.values())
    assert round(sum(row["gpu_hours"] for row in rows.values()), 6) == 12.0
    assert spend["total"]["usd"] == 24.0
    assert rows["unknown"]["gpu_hours"] >= 2.0
