"""The breaker sees telemetry break as a whole, and people go home one after the other."""

from datetime import datetime, timedelta

import pyarrow as pa
import pytest

from actions.loop.breaker import find_incident
from fallow.settings import Settings
from fallow.settings.actions import BreakerSettings
from fallow.tables import Batch
from warehouse.lake import Warehouse

pytestmark = pytest.mark.slow

DEVICES = 20
EVERY = timedelta(minutes=1)


def samples(now: datetime, idle_from: dict[int, int], silent_from: dict[int, int]) -> Batch:
    """Return half an hour of looks: devices work, until so many minutes before now."""
    rows = []
    for minute in range(30, 0, -1):
        for device in range(DEVICES):
            if minute <= silent_from.get(device, 0):
                continue
            idle = minute <= idle_from.get(device, 0)
            rows.append((now - minute * EVERY, f"GPU-{device}", 0.0 if idle else 0.8))
    return Batch.of(
        "sample",
        {
            "cluster": ["c"] * len(rows),
            "ts": [at.replace(tzinfo=None) for at, _, _ in rows],
            "device": [device for _, device, _ in rows],
            "sm_active": [active for _, _, active in rows],
        },
    )


def scrapes(now: datetime, targets: int, down: int, silent: int = 0) -> Batch:
    ts = [now - timedelta(minutes=20 if n < silent else 1) for n in range(targets)]
    return Batch.of(
        "scrape",
        {
            "cluster": ["c"] * targets,
            "ts": [at.replace(tzinfo=None) for at in ts],
            "collector": ["exporters"] * targets,
            "target": [f"http://n{n}:9400/metrics" for n in range(targets)],
            "up": [n >= down for n in range(targets)],
        },
    )


@pytest.mark.parametrize(
    ("idle", "silent", "says"),
    [
        (4, 0, None),
        (5, 0, "25% of 20 devices turned idle or silent within 15m"),
        (0, 5, "25% of 20 devices"),
        (3, 2, "25% of 20 devices"),
    ],
)
def test_devices_that_turn_at_once_trip_it(
    settings: Settings, now: datetime, idle: int, silent: int, says: str | None
) -> None:
    idle_from = dict.fromkeys(range(idle), 15)
    silent_from = dict.fromkeys(range(idle, idle + silent), 15)
    with Warehouse.open_in_memory(settings, clock=lambda: now) as lake:
        lake.ingest([samples(now, idle_from, silent_from)])
        why = find_incident(lake, BreakerSettings(), now)
    assert (why is None) if says is None else (why is not None and says in why), why


def test_devices_that_idled_long_before_or_worked_meanwhile_do_not_trip_it(
    settings: Settings, now: datetime
) -> None:
    idle_from = {**dict.fromkeys(range(8), 30), **dict.fromkeys(range(8, 16), 14)}
    with Warehouse.open_in_memory(settings, clock=lambda: now) as lake:
        lake.ingest([samples(now, idle_from, {})])
        assert find_incident(lake, BreakerSettings(), now) is None


@pytest.mark.parametrize(
    ("targets", "down", "trips"),
    [(10, (1, 0), False), (10, (2, 0), True), (20, (0, 3), True), (10, (0, 0), False)],
)
def test_exporters_that_are_down_trip_it(
    settings: Settings, now: datetime, targets: int, down: tuple[int, int], trips: bool
) -> None:
    with Warehouse.open_in_memory(settings, clock=lambda: now) as lake:
        lake.ingest([scrapes(now, targets, *down)])
        why = find_incident(lake, BreakerSettings(), now)
    assert (why is not None) is trips
    if why is not None:
        assert "targets are down" in why


def test_jobs_that_ended_with_their_own_exporters_do_not_trip_it(
    settings: Settings, now: datetime
) -> None:
    one = scrapes(now, 10, 3, 0).rows
    place = one.schema.get_field_index("collector")
    ended = Batch("scrape", one.set_column(place, "collector", pa.array(["trainers"] * len(one))))
    with Warehouse.open_in_memory(settings, clock=lambda: now) as lake:
        lake.ingest([ended])
        assert find_incident(lake, BreakerSettings(), now) is None


def of_prometheus(now: datetime, nodes: int, silent: dict[int, tuple[int, int]]) -> list[Batch]:
    """Return samples and scrapes of half an hour, one GPU per node.

    `silent`: from and until how many minutes before now, by node.
    """
    seen = [
        (now - minute * EVERY, n)
        for minute in range(30, 0, -1)
        for n in range(nodes)
        if not (n in silent and silent[n][0] >= minute > silent[n][1])
    ]
    sample = {
        "cluster": ["c"] * len(seen),
        "ts": [at.replace(tzinfo=None) for at, _ in seen],
        "device": [f"GPU-{n}" for _, n in seen],
        "node": [f"n{n}" for _, n in seen],
        "sm_active": [0.8] * len(seen),
    }
    result = [("http://prometheus:9090", 30, 0, True)]
    result += [(f"n{n}", begin, end, False) for n, (begin, end) in silent.items()]
    scrape = {
        "cluster": ["c"] * len(result),
        "ts": [(now - begin * EVERY).replace(tzinfo=None) for _, begin, _, _ in result],
        "until": [(now - end * EVERY).replace(tzinfo=None) for _, _, end, _ in result],
        "collector": ["prometheus"] * len(result),
        "target": [target for target, _, _, _ in result],
        "up": [up for _, _, _, up in result],
    }
    return [Batch.of("sample", sample), Batch.of("scrape", scrape)]


@pytest.mark.parametrize(
    ("nodes", "silent", "says"),
    [
        (1, {0: (6, 3)}, None),  # it is heard again
        (4, {0: (6, 3), 1: (9, 2)}, None),
        (12, {0: (6, 0)}, None),  # 1 of 13
        (8, {0: (6, 0)}, "11% of 9 targets are down"),  # the Prometheus and its nodes
        (12, {0: (6, 0), 1: (6, 3), 2: (6, 0)}, "15% of 13 targets are down"),
    ],
)
def test_nodes_of_a_prometheus_are_targets_and_down_while_they_are_silent(
    settings: Settings,
    now: datetime,
    nodes: int,
    silent: dict[int, tuple[int, int]],
    says: str | None,
) -> None:
    with Warehouse.open_in_memory(settings, clock=lambda: now) as lake:
        lake.ingest(of_prometheus(now, nodes, silent))
        why = find_incident(lake, BreakerSettings(), now)
    assert (why is None) if says is None else (why is not None and says in why), why


def test_an_empty_warehouse_trips_nothing(settings: Settings, now: datetime) -> None:
    with Warehouse.open_in_memory(settings, clock=lambda: now) as lake:
        assert find_incident(lake, BreakerSettings(), now) is None
