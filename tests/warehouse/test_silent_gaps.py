"""Between which findings telemetry is missing, and between which the workload was in use."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import pytest

from tests import engine
from tests.analyzers.conftest import START, Memory
from warehouse.case_parts import Gap, find_silent_gaps

POD = {"cluster": "c", "namespace": "ml", "pod": "chat-0"}
WORKLOAD = ("c", "Deployment", "ml", "chat")
FIVE = timedelta(minutes=5)


def minute(count: float) -> datetime:
    return START + timedelta(minutes=count)


@pytest.fixture
def site() -> Iterator[Memory]:
    with engine.lent() as one:
        views = Memory(one)
        views.rows(
            "pod",
            [
                {
                    **POD,
                    "uid": "u",
                    "workload_kind": "Deployment",
                    "workload": "chat",
                    "created_at": START,
                    "first_seen": START,
                    "last_seen": minute(600),
                }
            ],
        )
        views.rows(
            "allocation",
            [
                {
                    **POD,
                    "pod_uid": "u",
                    "device": "GPU-0",
                    "start": START,
                    "workload_kind": "Deployment",
                    "workload": "chat",
                    "share": 1.0,
                }
            ],
        )
        yield views


def is_silent(views: Memory, begin: float, end: float, source: str = "sample") -> bool:
    return find_silent_gaps(views, [Gap(1, WORKLOAD, minute(begin), minute(end))], source) == {1}


def put_samples(views: Memory, *minutes: float, interval_s: float = 300.0) -> None:
    views.rows(
        "sample",
        [
            {"cluster": "c", "device": "GPU-0", "ts": minute(m), "interval_s": interval_s}
            for m in minutes
        ],
    )


@pytest.mark.parametrize(
    ("sampled_at", "begin", "end", "silent"),
    [
        # Samples of 0 to 50 and from 75 on: telemetry is missing, and a finding ends with it.
        ([45, 50, 75, 80], 55, 75, True),
        # One in between was no part of a finding.
        ([45, 50, 65, 75, 80], 55, 75, False),
        # The host worked for one interval, while every sample of the device was there.
        ([45, 50, 55, 60, 65], 55, 60, False),
        # It worked for a minute within an interval, or across a sample.
        ([45, 50, 55, 60, 65], 56, 57, False),
        ([45, 50, 55, 60, 65], 54, 56, False),
        # Exporters are some seconds late.
        ([45, 50, 55.02, 60.1, 65], 56, 60.05, False),
    ],
    ids=["missing", "seen", "one interval", "a minute", "across a sample", "late"],
)  # fmt: skip
def test_a_gap_is_silent_where_no_sample_of_the_device_is_valid_in_it(
    site: Memory, sampled_at: list[float], begin: float, end: float, *, silent: bool
) -> None:
    put_samples(site, *sampled_at)
    assert is_silent(site, begin, end) is silent


@pytest.mark.parametrize(
    ("buckets", "begin", "end", "silent"),
    [
        ([45, 50, 75, 80], 55, 75, True),
        ([45, 50, 65, 75, 80], 55, 75, False),
        ([45, 50, 55, 60, 65], 55, 60, False),
        ([45, 50, 55, 60, 65], 56, 57, False),
        ([45, 50, 55, 60, 65], 54, 56, False),
    ],
)
def test_a_gap_is_silent_where_no_five_minutes_of_the_device_touch_it(
    site: Memory, buckets: list[float], begin: float, end: float, *, silent: bool
) -> None:
    site.rows(
        "rollup_5m",
        [
            {**POD, "device": "GPU-0", "bucket": minute(m), "n": 5, "interval_s": 60.0}
            for m in buckets
        ],
    )
    assert is_silent(site, begin, end, "rollup_5m") is silent


@pytest.mark.parametrize(("requested_at", "silent"), [(54, True), (65, False), (80, True)])
def test_requests_while_telemetry_is_missing_end_a_finding(
    site: Memory, requested_at: float, *, silent: bool
) -> None:
    put_samples(site, 45, 50, 75, 80)
    site.rows("pod_sample", [{**POD, "ts": minute(requested_at), "requests_running": 2.0}])
    assert is_silent(site, 55, 75) is silent


@pytest.mark.parametrize(
    ("columns", "silent"),
    [
        ({"busy_kernels": 0}, True),
        ({"busy_kernels": 1}, False),
        ({"busy_kernels": 0, "last_kernel_activity": minute(54)}, True),
        ({"busy_kernels": 0, "last_kernel_activity": minute(60)}, False),
        ({"busy_kernels": 0, "last_terminal_activity": minute(60)}, False),
    ],
)
def test_a_kernel_that_runs_while_telemetry_is_missing_ends_a_finding(
    site: Memory, columns: dict[str, Any], *, silent: bool
) -> None:
    put_samples(site, 45, 50, 75, 80)
    site.rows("notebook_sample", [{**POD, "ts": minute(65), **columns}])
    assert is_silent(site, 55, 75) is silent
