"""Find free GPUs that the next pod cannot use, the causes, and the remedies.

    nodes, devices, allocation ─► free capacity by node ──┐
    pods of the window ─► the mix of requests ────────────┼─► F_n(M) ─► pools ─► findings
    ledger ─► free GPU-hours and dollars ─────────────────┘              └─► plan of moves

`fallow.fragmentation` computes the measure. A cluster whose devices have no telemetry (an imported
inventory) has one state, without hours or dollars.
"""

from decimal import Decimal
from typing import Any

from analyzers.fragmentation.cluster_state import ClusterState, UnallocatedCost, read_cluster_states
from analyzers.fragmentation.elsewhere import find_elsewhere
from analyzers.fragmentation.figures import compute_figures, measure
from analyzers.fragmentation.findings import (
    build_mig_finding,
    build_pool_finding,
    compute_lost,
    describe_figures,
    describe_mig,
    sum_costs,
)
from analyzers.fragmentation.mig_devices import read_mig_devices
from analyzers.fragmentation.node_pools import NextPods, group_pools
from analyzers.query_cache import cache_query
from fallow.models import Finding, Subject, Unjudged
from fallow.protocols import Views
from fallow.settings.capacity import FragmentationSettings
from fallow.window import Window

SEVERAL = 2
"""Clusters from which on a workload may fit in another one."""
_SUMMED = ("nodes", "idle_gpus", "fragmented_gpus", "unusable_gpus", "whole_free_gpus")
_JOBS = ("jobs_that_fit", "free_on_smaller_remainders")


class FragmentationAnalyzer:
    """Find free GPUs that the next pods cannot use.

    Source: telemetry-and-waste.md#fragmentation-and-mig.
    """

    def __init__(self, settings: FragmentationSettings | None = None) -> None:
        self.settings = settings or FragmentationSettings()

    def find(self, views: Views, window: Window) -> list[Finding]:
        """Return one finding per pool that loses GPUs, the most GPU-hours, then GPUs, first.

        Then one per workload that waits while another cluster has room for it.
        """
        states = self._read_states(views, window)
        findings = [] if len(states) < SEVERAL else [*find_elsewhere(views, window)]
        for state in states:
            measurement = measure(state)
            for pool in group_pools(state):
                candidates = (
                    build_pool_finding(state, measurement, pool, window, self.settings),
                    build_mig_finding(views, state, pool, window, self.settings),
                )
                findings += [finding for finding in candidates if finding is not None]
        return sorted(
            findings,
            key=lambda f: (-f.gpu_hours, -float(f.details.get("fragmented_gpus", 0)), f.id),
        )

    def summary(self, views: Views, window: Window) -> dict[str, Any]:
        """Return the figures of the whole fleet, and of each cluster, in GPUs and dollars."""
        clusters = {p.cluster: self._summarize(p) for p in self._read_states(views, window)}
        return {**_sum_clusters(list(clusters.values())), "clusters": clusters}

    def unjudged(self, views: Views, window: Window) -> list[Unjudged]:
        """Return what could not be measured, and what was assumed, by cluster."""
        unjudged = []
        for state in self._read_states(views, window):
            reasons = list(state.notes)
            if state.unseen_gpus:
                reasons.append(
                    f"{state.unseen_gpus} GPUs of the inventory have no telemetry: whether they "
                    "are free is unknown"
                )
            next_pods = NextPods(state)
            if state.demand.assumed and not all(map(next_pods.waiting, group_pools(state))):
                reasons.append(
                    f"only {state.demand.pods} pods were seen: another fleet's mix is assumed"
                )
            about = Subject(state.cluster, "", "Fleet", state.cluster)
            unjudged += [Unjudged(about, 0.0, (reason,)) for reason in reasons]
        return unjudged

    @cache_query
    def _read_states(self, views: Views, window: Window) -> list[ClusterState]:
        return read_cluster_states(views, window, self.settings.cover, self.settings.least_pods)

    def _summarize(self, state: ClusterState) -> dict[str, Any]:
        measurement = measure(state)
        rows = list(range(len(state.nodes)))
        money = compute_lost(state, measurement.ratio(), rows)
        cut = read_mig_devices(state.mig, state.demand)
        return {
            **describe_figures(compute_figures(state, measurement, rows, self.settings.slot_gpus)),
            "gpu_hours": money.gpu_hours,
            "usd": money.usd,
            **({"mig": describe_mig(cut)} if cut else {}),
        }


def _sum_clusters(clusters: list[dict[str, Any]]) -> dict[str, Any]:
    """Add clusters up; a job never spans two of them."""
    money = sum_costs([UnallocatedCost(c["gpu_hours"], c["usd"]) for c in clusters])
    usd: Decimal | None = money.usd
    sizes = list(clusters[0]["packing"]) if clusters else []
    whole = sum(c["whole_free_gpus"] for c in clusters)
    packing = {}
    for size in sizes:
        sums = {job: sum(c["packing"][size][job] for c in clusters) for job in _JOBS}
        part = round(sums["jobs_that_fit"] * int(size) / whole, 4) if whole else None
        packing[size] = {**sums, "packability": part}
    return {
        **{name: round(sum(c[name] for c in clusters), 6) for name in _SUMMED},
        "by_cause": _sum_by(clusters, "by_cause"),
        "unusable_by_cause": _sum_by(clusters, "unusable_by_cause"),
        "packing": packing,
        "largest_job_gpus": max((c["largest_job_gpus"] for c in clusters), default=0),
        "gang_slots": sum(c["gang_slots"] for c in clusters),
        "gpu_hours": money.gpu_hours,
        "usd": usd,
    }


def _sum_by(clusters: list[dict[str, Any]], key: str) -> dict[str, float]:
    names = clusters[0][key] if clusters else ()
    return {name: round(sum(c[key][name] for c in clusters), 6) for name in names}
