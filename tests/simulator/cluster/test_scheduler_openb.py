"""The scheduler on a real cluster's nodes and pods, against figures known from elsewhere."""

import csv
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from fallow.fragmentation import FragmentationMeasure, PodType, mix, read_typical_mix
from simulator.cluster.scheduler.fleet import SchedulerFleet
from simulator.cluster.scheduler.placing import place
from simulator.cluster.scheduler.requests import NodeFree, PodRequest, Policy

pytestmark = pytest.mark.real_data
Shared = Callable[[str], Path]


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


@pytest.fixture
def empty(shared_data: Shared) -> SchedulerFleet:
    return SchedulerFleet(
        NodeFree(
            row["sn"],
            int(row["cpu_milli"]),
            int(row["memory_mib"]),
            pods=1000,
            gpu_milli=(1000,) * int(row["gpu"]),
            gpu_model=row["model"],
        )
        for row in rows(shared_data("openb/openb_node_list_gpu_node.csv"))
    )


@pytest.fixture
def pods(shared_data: Shared) -> list[PodRequest]:
    return [
        PodRequest(
            row["name"],
            row["name"],
            int(row["cpu_milli"]),
            int(row["memory_mib"]),
            int(row["num_gpu"]),
            int(row["gpu_milli"]),
        )
        for row in rows(shared_data("openb/openb_pod_list_default.csv"))
    ]


def fill(
    fleet: SchedulerFleet, pods: list[PodRequest], policy: Policy
) -> dict[str, tuple[str, str]]:
    where: dict[str, tuple[str, str]] = {}
    for pod in pods:
        found = place(pod, fleet, policy)
        if found is not None:
            fleet.take(pod, found)
            where[pod.uid] = found.node, "-".join(map(str, found.devices))
    return where


def fragments(fleet: SchedulerFleet) -> float:
    return float(fleet.measure.fragments(fleet.cpu, fleet.usable).sum())


def test_first_fit_places_every_pod_where_the_snapshot_has_it(
    empty: SchedulerFleet, pods: list[PodRequest], shared_data: Shared
) -> None:
    found = fill(empty, pods, "first-fit")
    snapshot = rows(shared_data("openb/openb_default_firstfit_placement.csv"))
    assert found == {r["pod"]: (r["node"], r["gpu_index"]) for r in snapshot if r["node"]}
    assert (len(found), len(pods) - len(found)) == (7_784, 368)
    assert empty.usable.sum() == 447_290
    assert fragments(empty) == pytest.approx(431_587.24, abs=0.01)


def test_every_node_of_the_snapshot_has_its_known_fragmentation(shared_data: Shared) -> None:
    nodes = rows(shared_data("openb/openb_default_firstfit_nodes.csv"))
    free = np.zeros((len(nodes), 8), np.int64)
    for at, node in enumerate(nodes):
        parts = node["gpu_milli_free"].split("|")
        free[at, : len(parts)] = [int(part) for part in parts]
    cpu = np.array([int(node["cpu_milli_free"]) for node in nodes])
    want = [float(node["frag_milli"]) for node in nodes]
    assert FragmentationMeasure(read_typical_mix()).fragments(cpu, free) == pytest.approx(
        want, abs=1e-3
    )


def test_the_empty_cluster_has_the_known_fragmentation_and_causes(empty: SchedulerFleet) -> None:
    assert fragments(empty) == pytest.approx(866_233, abs=1)
    causes = empty.measure.causes(empty.cpu, empty.usable)
    assert {cause: round(lost / 1000, 3) for cause, lost in causes.items() if lost} == {
        "lack-cpu": 21.541,
        "no-gpu": 831.166,
        "no-gpu-lack-cpu": 13.525,
    }


def test_the_default_mix_is_what_these_pods_ask(
    pods: list[PodRequest], shared_data: Shared
) -> None:
    kinds = [PodType(pod.cpu_milli, pod.gpus, pod.gpu_milli) for pod in pods]
    assert len(set(kinds)) == 91
    assert mix(kinds) == read_typical_mix()
    known = json.loads(shared_data("openb/typical_pods_default_95pct.json").read_text("utf-8"))
    assert [
        (kind.cpu_milli, kind.gpus, kind.gpu_milli, round(kind.popularity, 8))
        for kind in read_typical_mix()
    ] == [(k["cpu_milli"], k["num_gpu"], k["gpu_milli"], k["popularity"]) for k in known]


def test_the_gradient_places_more_pods_and_leaves_less_idle_than_first_fit(
    empty: SchedulerFleet, pods: list[PodRequest]
) -> None:
    assert len(fill(empty, pods, "fgd")) == 7_871
    assert empty.usable.sum() == 420_380
