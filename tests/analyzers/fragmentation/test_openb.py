"""A real cluster's inventory, against figures known from elsewhere."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from analyzers.fragmentation import packing
from analyzers.fragmentation.analyzer import FragmentationAnalyzer
from analyzers.fragmentation.cluster_state import read_cluster_states
from collectors.openb import import_openb
from fallow.settings.capacity import FragmentationSettings
from fallow.window import Window

pytestmark = pytest.mark.real_data
Shared = Callable[[str], Path]


@pytest.fixture
def openb(views: Any, shared_data: Shared) -> Callable[[bool], Any]:
    def load(placed: bool) -> Any:
        placement = shared_data("openb/openb_default_firstfit_placement.csv")
        views.put(
            *import_openb(
                shared_data("openb/openb_node_list_gpu_node.csv"),
                shared_data("openb/openb_pod_list_default.csv"),
                placement if placed else None,
            )
        )
        return views

    return load


def test_the_empty_cluster(openb: Callable[[bool], Any], window: Window) -> None:
    answer = FragmentationAnalyzer().summary(openb(False), window)
    assert answer["idle_gpus"] == 6212
    assert answer["fragmented_gpus"] == pytest.approx(866.233, abs=5e-4)
    assert answer["by_cause"] == pytest.approx(
        {
            "lack_cpu": 21.541,
            "cpu_only_demand": 831.166,
            "cpu_only_demand_lack_cpu": 13.525,
            "lack_gpu": 0,
            "lack_both": 0,
            "sliver": 0,
            "no_access": 0,
        },
        abs=5e-4,
    )


@pytest.mark.parametrize(
    ("pods", "per_cent"), [("gpuspec20", 25.845), ("multigpu30", 14.065), ("default", 13.945)]
)
def test_the_published_variants(
    views: Any, window: Window, shared_data: Shared, pods: str, per_cent: float
) -> None:
    nodes = shared_data("openb/openb_node_list_gpu_node.csv")
    views.put(*import_openb(nodes, shared_data(f"openb/openb_pod_list_{pods}.csv")))
    answer = FragmentationAnalyzer().summary(views, window)
    assert 100 * answer["fragmented_gpus"] / 6212 == pytest.approx(per_cent, abs=5e-4)


def test_the_snapshot(openb: Callable[[bool], Any], window: Window) -> None:
    views = openb(True)
    analyzer = FragmentationAnalyzer(FragmentationSettings(min_gpus=0))
    answer = analyzer.summary(views, window)
    assert answer["idle_gpus"] == pytest.approx(447.29)
    assert answer["fragmented_gpus"] == pytest.approx(431.58724, abs=5e-6)
    assert sum(answer["by_cause"].values()) == pytest.approx(answer["fragmented_gpus"])
    assert answer["whole_free_gpus"] == 131
    sizes = {
        size: (one["free_on_smaller_remainders"], one["jobs_that_fit"])
        for size, one in answer["packing"].items()
    }
    assert sizes == {"1": (0, 131), "2": (69, 28), "4": (127, 1), "8": (131, 0)}
    found = analyzer.find(views, window)
    for name in ("idle_gpus", "fragmented_gpus", "unusable_gpus"):
        assert sum(f.details[name] for f in found) == pytest.approx(answer[name], abs=1e-4)
    assert all(f.evidence == "suspected" and f.usd is None for f in found)


def test_a_probe_of_one_gpu_and_twelve_cores(openb: Callable[[bool], Any], window: Window) -> None:
    (picture,) = read_cluster_states(openb(True), window, 0.95, 50)
    free = packing.count_whole(picture.gpu[-1])
    assert packing.probe_request(free, picture.cpu[-1], 1, 12_000) == (8, 123)


def test_every_node_is_as_the_snapshot_has_it(
    openb: Callable[[bool], Any], window: Window, shared_data: Shared
) -> None:
    (picture,) = read_cluster_states(openb(True), window, 0.95, 50)
    lines = shared_data("openb/openb_default_firstfit_nodes.csv").read_text().splitlines()[1:]
    known = [line.split(",") for line in lines]
    assert [node.name for node in picture.nodes] == [row[0] for row in known]
    assert np.array_equal(picture.cpu[-1], [int(row[2]) for row in known])
    free = [[int(g) for g in row[4].split("|")] for row in known]
    assert [list(gpu[: len(f)]) for gpu, f in zip(picture.gpu[-1], free, strict=True)] == free
