"""The peers' rules as they are, defects included, on rows made by hand."""

from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from benchmarks import peer_rules as peers
from benchmarks.accuracy_scores import Verdict
from fallow.settings import Settings
from fallow.tables import Batch
from fallow.window import Window
from simulator.exporters.quirks import Quirks
from warehouse.lake import Warehouse

pytestmark = pytest.mark.slow

START = datetime(2026, 11, 16, tzinfo=UTC)
WINDOW = Window(START, START + timedelta(hours=8))
NAIVE = START.replace(tzinfo=None)
ZEROS = [0.0] * 480
BUSY = [0.9] * 480


class Site:
    """A warehouse that a test fills."""

    def __init__(self, warehouse: Warehouse) -> None:
        self.warehouse = warehouse

    def gpu(
        self,
        device: str,
        gr: list[float] | None,
        util: list[float] | None,
        *,
        pod: str | None = "work-0",
        index: int = 0,
        node: str = "n1",
    ) -> None:
        """Put a look a minute: GR_ENGINE_ACTIVE and GPU_UTIL, both as ratios."""
        count = len(gr if gr is not None else util or [])
        data: dict[str, object] = {
            "cluster": ["c"] * count,
            "ts": [NAIVE + timedelta(minutes=n) for n in range(count)],
            "device": [device] * count,
            "node": [node] * count,
            "gpu_index": [index] * count,
            "namespace": ["ns" if pod else None] * count,
            "pod": [pod] * count,
            "container": ["main" if pod else None] * count,
            "gr_engine_active": gr or [None] * count,
            "gpu_util_pct": [100 * v for v in util] if util is not None else [None] * count,
        }
        self.warehouse.ingest([Batch.of("sample", data)])

    def pod(
        self,
        name: str = "work-0",
        kind: str = "Deployment",
        *,
        workload: str = "work",
        age_h: float = 9,
    ) -> None:
        """Put a pod that runs since so many hours before the window."""
        began = NAIVE - timedelta(hours=age_h)
        row: Mapping[str, object] = {
            "cluster": "c", "uid": f"uid-{name}", "namespace": "ns", "pod": name,
            "workload_kind": kind, "workload": workload, "created_at": began,
            "started_at": began, "last_seen": WINDOW.end.replace(tzinfo=None),
        }  # fmt: skip
        self.warehouse.ingest([Batch.of("pod", {k: [v] for k, v in row.items()})])

    def said(self, rule: peers.Rule, *, blind: tuple[str, ...] = ()) -> list[Verdict]:
        return peers.read_verdicts(self.warehouse, WINDOW, rule, blind=blind)

    def hours(self, rule: peers.Rule) -> list[tuple[float, float]]:
        """Return when each verdict begins and ends, in hours after the start."""
        zero = START.timestamp()
        return [
            (round((v.known_s - zero) / 3600, 2), round((v.end_s - zero) / 3600, 2))
            for v in self.said(rule)
        ]


@pytest.fixture
def site(settings: Settings) -> Iterator[Site]:
    with Warehouse.open_in_memory(settings, clock=lambda: WINDOW.end) as warehouse:
        yield Site(warehouse)


def test_gpu_pruner_prunes_an_idle_deployment_and_spares_a_busy_one(site: Site) -> None:
    site.gpu("GPU-0", ZEROS, ZEROS)
    site.gpu("GPU-1", BUSY, BUSY, pod="busy-0", index=1)
    site.pod()
    site.pod("busy-0", workload="busy")
    (found,) = site.said(peers.GPU_PRUNER)
    assert (found.owner, found.actionable) == (("ns", "Deployment", "work"), True)


Fill = Callable[[Site], None]


def one_of_eight(site: Site) -> None:
    for number in range(8):
        site.gpu(f"GPU-{number}", BUSY if number else ZEROS, BUSY, index=number)


def one_of_three_replicas(site: Site) -> None:
    for number in range(3):
        site.gpu(f"GPU-{number}", BUSY if number else ZEROS, BUSY, pod=f"work-{number}")
        site.pod(f"work-{number}")


def stuck_profiling(site: Site) -> None:
    site.gpu("GPU-0", ZEROS, BUSY)


def five_minutes_of_looks(site: Site) -> None:
    site.gpu("GPU-0", [0.0] * 5, [0.0] * 5)


@pytest.mark.parametrize(
    "fill", [one_of_eight, one_of_three_replicas, stuck_profiling, five_minutes_of_looks]
)
def test_gpu_pruner_prunes_the_whole_controller_for(site: Site, fill: Fill) -> None:
    site.pod()
    fill(site)
    assert {v.owner for v in site.said(peers.GPU_PRUNER)} == {("ns", "Deployment", "work")}


def test_gpu_pruner_reads_utilisation_only_where_profiling_is_absent(site: Site) -> None:
    site.pod()
    site.gpu("GPU-0", None, BUSY)
    assert site.said(peers.GPU_PRUNER) == []


def test_gpu_pruner_sums_the_instances_of_a_board(site: Site) -> None:
    site.pod()
    site.gpu("GPU-0/gi1", ZEROS, None)
    site.gpu("GPU-0/gi2", BUSY, None)
    assert site.said(peers.GPU_PRUNER) == []


def test_gpu_pruner_waits_for_window_and_grace_and_then_for_one_kernel(site: Site) -> None:
    site.pod(age_h=0)
    site.gpu("GPU-0", [0.0] * 120 + [0.01] + [0.0] * 359, ZEROS)
    # 35 minutes are checked at 36; the kernel at 2 h counts until the window has passed it.
    assert site.hours(peers.GPU_PRUNER) == [(0.6, 2.0), (2.5, 8.05)]


@pytest.mark.parametrize("kind", ["Job", "PyTorchJob", "RayCluster", "Pod"])
def test_gpu_pruner_cannot_stop_what_it_finds_of_other_kinds(site: Site, kind: str) -> None:
    site.pod(kind=kind)
    site.gpu("GPU-0", ZEROS, ZEROS)
    assert {v.actionable for v in site.said(peers.GPU_PRUNER)} == {False}


def test_gpu_pruner_is_blind_to_nodes_whose_labels_it_does_not_expect(site: Site) -> None:
    site.pod()
    site.gpu("GPU-0", ZEROS, ZEROS)
    for quirk in peers.BREAKING:
        quirks = Quirks.of([f"{quirk}:rate=1"])
        blind = peers.list_unreadable_nodes(peers.GPU_PRUNER, ["n1"], quirks, WINDOW)
        assert blind == ["n1"]
        assert site.said(peers.GPU_PRUNER, blind=tuple(blind)) == []
        assert peers.list_unreadable_nodes(peers.PRINCETON, ["n1"], quirks, WINDOW) == []


def test_princeton_cancels_from_the_start_after_two_hours_and_later_after_five(site: Site) -> None:
    site.pod(kind="Job", age_h=0)
    site.gpu("GPU-0", ZEROS, ZEROS)
    assert site.hours(peers.PRINCETON)[0][0] == 2.0
    site.pod("used-0", kind="Job", workload="used", age_h=0)
    site.gpu("GPU-1", ZEROS, [0.5] * 60 + [0.0] * 420, pod="used-0")
    begins = {v.owner[2]: v.known_s - START.timestamp() for v in site.said(peers.PRINCETON)}
    assert begins == {"work": 2 * 3600, "used": 6 * 3600}


def test_princeton_cancels_a_job_for_one_idle_gpu_of_eight(site: Site) -> None:
    site.pod(kind="Job")
    for number in range(8):
        site.gpu(f"GPU-{number}", BUSY, BUSY if number else ZEROS, index=number)
    assert {v.owner[2] for v in site.said(peers.PRINCETON)} == {"work"}
    seven = peers.PRINCETON.parameters | {"part": 0.8}
    assert site.said(msgspec.structs.replace(peers.PRINCETON, parameters=seven)) == []


def test_princeton_never_finds_an_empty_gpu_whose_utilisation_is_latched(site: Site) -> None:
    site.pod(kind="Notebook")
    site.gpu("GPU-0", ZEROS, [1.0] * 480)
    assert site.said(peers.PRINCETON) == []


def test_princeton_says_nothing_of_jobs_without_statistics(site: Site) -> None:
    site.pod(kind="Job")
    site.gpu("GPU-0", ZEROS, None)
    assert site.said(peers.PRINCETON) == []
