"""Two days of workloads whose pods mount claims and read."""

import json
from datetime import timedelta
from typing import Any

import pytest

from tests.analyzers.hourly import HOURS, NAIVE, Hours


@pytest.fixture
def site_hours(views: Any) -> Hours:
    return Hours(views)


def reader(*claims: str) -> dict[str, Any]:
    """Return what the inventory says of a pod that lives all the time and mounts claims."""
    end = NAIVE + timedelta(hours=HOURS)
    return {
        "annotations": json.dumps({"fallow.pvcs": claims}),
        "started_at": NAIVE, "first_seen": NAIVE, "last_seen": end,
    }  # fmt: skip


@pytest.fixture
def mounts() -> Any:
    return reader
