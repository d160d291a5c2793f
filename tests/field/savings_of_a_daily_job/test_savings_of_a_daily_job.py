"""Advice about a short job saves at most what its hour cost."""

from typing import Any

import pytest

from tests.field.site import (
    FREE,
    IDLE,
    WINDOW,
    Site,
    ago,
    build_node,
    build_pod,
    list_lines,
    write_time,
)

pytestmark = pytest.mark.long


def test_a_job_of_an_hour_saves_at_most_that_hour(site: Site) -> None:
    site.set_price(2)
    ended = {
        "phase": "Succeeded",
        "startTime": write_time(ago(4)),
        "containerStatuses": [
            {
                "name": "c",
                "state": {
                    "terminated": {
                        "exitCode": 0,
                        "startedAt": write_time(ago(4)),
                        "finishedAt": write_time(ago(3)),
                    }
                },
                "ready": False,
                "restartCount": 0,
                "image": "x",
                "imageID": "",
            }
        ],
    }
    pod = build_pod("daily-0", "a", gpus=2, owner=("Job", "daily"), born=4, status=ended)
    assert site.import_objects(build_node("a", 2, born=6), pod).code == 0
    lines: list[str] = []
    held: dict[str, Any] = {"values": IDLE, "pod": "daily-0", "namespace": "ml", "container": "c"}
    for k in (0, 1):
        lines += list_lines(f"GPU-{k}", "a", gpu=k, values=FREE, until=4)
        lines += list_lines(f"GPU-{k}", "a", gpu=k, since=4, until=3, **held)
        lines += list_lines(f"GPU-{k}", "a", gpu=k, values=FREE, since=3)
    assert site.import_lines(*lines).code == 0
    assert site.run("analyze", *WINDOW).code == 0
    rows = site.read_json("spend", "--by", "workload", *WINDOW)["spend"]
    job = next(row for row in rows if row["workload"].endswith("daily"))
    assert (job["gpu_hours"], job["usd"]) == (2.0, 4.0)
    assert (job["saves_usd"] or 0) <= 4.0
    assert sum(row["usd"] for row in rows) == 24.0
