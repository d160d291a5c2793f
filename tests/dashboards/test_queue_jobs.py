"""The page Queues lists jobs that wait before they have pods beside the pods that wait."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from capacity.queue.reading import QueueReader
from dashboards.figures import queues
from dashboards.figures.query import Filters
from fallow.settings import Settings
from fallow.window import Window
from runtime.cli import dashboard
from runtime.operations.analysis.pending import build_reader
from tests.actions.cases import NOW
from tests.actions.facts.test_waiting import THEN
from tests.analyzers.conftest import Memory
from tests.analyzers.fragmentation.test_moves_way import stage_two
from tests.capacity.queue_fleets import HOUR, eight
from tests.kube.test_pending_workloads import PENDING, group
from tests.warehouse.test_pending_jobs import JobFleet, give_quota, kueue_job

DAY = Window(NOW - 24 * HOUR, NOW)


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[JobFleet]:
    """Return a cluster in which a job with pods, one without and one of unknown size wait."""
    memory = Memory()
    fleet = JobFleet(memory, tmp_path)
    fleet.node("n1")
    fleet.runs("idle", eight("n1"), state="idle", kind="Notebook")
    give_quota(fleet)
    fleet.lists(*kueue_job(PENDING), group(totals={}))
    fleet.waits("pods", 8)
    yield fleet
    memory.engine.close()


def list_names(fleet: JobFleet, filters: Filters) -> list[str]:
    rows = queues.read_waiting(fleet.views, DAY, filters).to_pylist()
    records = queues.read_queue(fleet.views, DAY)
    return [row["workload"] for row in queues.list_waiting(rows, records, filters)]


@pytest.mark.parametrize(
    ("filters", "names"),
    [
        (Filters(), ["team-b/Job/train", "team-b/Job/pods", "team-b/PodGroup/pg"]),
        (Filters(cluster="d"), []),
        (Filters(namespace="team-b", team="team-b"),
         ["team-b/Job/train", "team-b/Job/pods", "team-b/PodGroup/pg"]),
        (Filters(team="other"), []),
    ],
)  # fmt: skip
def test_jobs_without_pods_are_rows_of_the_page(
    fleet: JobFleet, filters: Filters, names: list[str]
) -> None:
    """12 GPU-h of the job, 8 of the pod, an unknown number of the group."""
    assert list_names(fleet, filters) == names


@pytest.fixture
def _plain_reader() -> Iterator[None]:
    yield
    queues.use_reader(QueueReader)


@pytest.mark.usefixtures("_plain_reader")
def test_served_pages_know_moves_and_checkpoints_as_the_command_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: Settings
) -> None:
    """A pod of two GPUs moves for a job of eight; without a planner nothing lets it in."""
    memory = Memory()
    fleet = JobFleet(memory, tmp_path)
    stage_two(fleet)
    (before,) = queues.read_queue(fleet.views, DAY).values()
    assert before.cheapest_way is None
    monkeypatch.setattr(dashboard, "serve", lambda _settings: None)
    dashboard.serve_pages(cast(Any, SimpleNamespace(say=lambda _text: None)), settings)
    (record,) = queues.read_queue(fleet.views, DAY).values()
    assert record.cheapest_way is not None
    assert record.cheapest_way.kind == "after_moves"
    reader = build_reader(fleet.views, NOW, settings)
    assert record == reader.read()[0]
    memory.engine.close()


def list_waits(fleet: JobFleet, window: Window, filters: Filters) -> list[float]:
    """Return the GPUs that are waited for in each hour."""
    return [hour.waiting_gpus for hour in queues.list_demand(fleet.views, window, filters)]


def test_the_curve_has_the_jobs_without_pods_of_fallow_queue(fleet: JobFleet) -> None:
    """8 GPUs of the job wait since 10:30, 8 of the pod since 11:00; the group's are not known."""
    window = Window(NOW - 3 * HOUR, NOW)
    assert list_waits(fleet, window, Filters()) == [0.0, 4.0, 16.0]
    known = [r for r in QueueReader(fleet.views, NOW).read() if r.gpu_hours is not None]
    assert sum(record.gpu_hours or 0.0 for record in known) == 20.0
    assert list_waits(fleet, window, Filters(team="other")) == [0.0, 0.0, 0.0]
    assert list_waits(fleet, window, Filters(cluster="d")) == [0.0, 0.0, 0.0]


def test_a_job_with_waiting_pods_counts_once(fleet: JobFleet) -> None:
    """A near-twin: its two pods were created at 11:30 and have no node."""
    created = THEN - timedelta(minutes=30)
    fleet.views.rows("pod", [
        {"cluster": "c", "namespace": "team-b", "workload_kind": "Job", "workload": "train",
         "uid": f"t{n}", "pod": f"train-{n}", "phase": "Pending", "gpu_request": 4.0,
         "gpu_resource": "nvidia.com/gpu", "created_at": created, "first_seen": created,
         "last_seen": THEN}
        for n in range(2)
    ])  # fmt: skip
    window = Window(NOW - 2 * HOUR, NOW)
    assert list_waits(fleet, window, Filters()) == [4.0, 16.0]


def test_a_job_waited_until_it_was_listed_last(fleet: JobFleet) -> None:
    """It was last listed at 11:00; another job is listed until twelve."""
    fleet.views.rows("pending_workload", [
        {"cluster": "c", "uid": "gone", "kind": "Workload", "namespace": "team-b", "name": "gone",
         "workload_kind": "Job", "workload": "gone", "state": "pending", "condition": "{}",
         "request": '{"gpus": 2, "pods": 1}', "created_at": THEN - timedelta(hours=2),
         "first_seen": THEN - timedelta(hours=2), "last_seen": THEN - timedelta(hours=1)}
    ])  # fmt: skip
    window = Window(NOW - 2 * HOUR, NOW)
    assert list_waits(fleet, window, Filters()) == [6.0, 16.0]
