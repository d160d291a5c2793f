"""One look at work is enough: by the devices a finding names, and by those a workload holds."""

from datetime import datetime, timedelta
from typing import Any

import msgspec
import pytest

from actions.loop.recent_activity import find_active_device
from fallow.settings import Settings
from fallow.tables import Batch
from tests.actions import cases
from warehouse.lake import Warehouse


@pytest.mark.parametrize(
    ("reading", "named", "says"),
    [
        ((30, "sm_active", 0.9), True, "GPU-1 was seen at work (90%)"),
        ((30, "gpu_util_pct", 60.0), True, "(60%)"),
        ((140, "sm_active", 0.9), True, "(90%)"),
        ((160, "sm_active", 0.9), True, None),
        ((30, "sm_active", 0.05), True, None),
        ((30, "sm_active", None), True, None),
        ((30, "sm_active", 0.9), False, "(90%)"),
    ],
)
def test_the_last_looks(
    settings: Settings,
    now: datetime,
    reading: tuple[int, str, float | None],
    named: bool,
    says: str | None,
) -> None:
    seconds_ago, column, value = reading
    at = (now - timedelta(seconds=seconds_ago)).replace(tzinfo=None)
    seen: dict[str, Any] = {"cluster": ["c"], "ts": [at], "device": ["GPU-1"], column: [value]}
    found = cases.finding(details={"devices": ["GPU-1"]} if named else {})
    with Warehouse.open_in_memory(settings, clock=lambda: now) as lake:
        lake.ingest([Batch.of("sample", seen)])
        if not named:
            held = {
                "cluster": ["c"],
                "device": ["GPU-1"],
                "pod_uid": ["u"],
                "start": [at - timedelta(hours=1)],
                "namespace": [found.subject.namespace],
                "workload_kind": [found.subject.workload_kind],
                "workload": [found.subject.workload],
            }
            lake.replace("allocation", Batch.of("allocation", held).rows, "true")
        why = find_active_device(lake, found, now, idle=0.05)
    assert (why is None) if says is None else (why is not None and says in why), why


def test_other_workloads_at_work_are_not_its_own(settings: Settings, now: datetime) -> None:
    at = (now - timedelta(seconds=30)).replace(tzinfo=None)
    sample: dict[str, Any] = {"cluster": ["c"], "ts": [at], "device": ["GPU-2"], "sm_active": [1.0]}
    found = msgspec.structs.replace(cases.finding(), details={"devices": ["GPU-1"]})
    with Warehouse.open_in_memory(settings, clock=lambda: now) as lake:
        lake.ingest([Batch.of("sample", sample)])
        assert find_active_device(lake, found, now, idle=0.05) is None
