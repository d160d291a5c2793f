"""Build the findings of jobs that are spread too widely."""

from datetime import UTC

from analyzers.topology.gangs import PlacedGang
from analyzers.topology.rank_traffic import GIGA, RankTraffic
from analyzers.topology.spread import GangSpread
from analyzers.work import (
    MOST_NAMED,
    WORKED,
    WorkloadCosts,
    compute_per_day,
    compute_share,
)
from fallow.models import Evidence, Finding, FindingKey, Recommendation, Subject
from fallow.window import Window

ANALYZER, KIND = "topology", "spread_gang"


def build_finding(
    gang: PlacedGang, traffic: RankTraffic, window: Window, costs: WorkloadCosts, least_bps: float
) -> Finding | None:
    """Return the finding of a job; None = its ranks communicate less than that, or nobody knows."""
    then = gang.then
    net = traffic.net_bps
    rate = net if net is not None else traffic.pcie_bps
    if then is None or rate is None or rate < least_bps:
        return None
    first = gang.rows[0]
    # A node's pods communicate over the same link: the link belongs to the node.
    pods = max(len(row.pods) for row in gang.rows)
    busy = min(1.0, rate * (pods if net is not None else 1) / GIGA / then.gbs)
    placed = min(1.0, gang.hours / first.all_hours)
    share = busy * (1 - then.score) * placed
    total = costs.total(gang.owner, WORKED)
    hours = first.all_hours if total is None else total.gpu_hours
    subject = build_subject(gang)
    start = max(window.start, first.started_at.replace(tzinfo=UTC))
    end = min(window.end, max(row.until for row in gang.rows).replace(tzinfo=UTC))
    evidence: Evidence = "confirmed" if net is not None else "suspected"
    usd = None if total is None or total.usd is None else compute_share(total.usd, share)
    wasted_hours = round(hours * share, 6)
    why = _explain(gang, then)
    return FindingKey(ANALYZER, KIND, subject, Window(start, end)).build(
        evidence=evidence,
        confidence=0.9 if evidence == "confirmed" else 0.45,
        gpu_hours=wasted_hours,
        usd=usd,
        details={
            "why": why,
            "signals": _build_signals(traffic),
            "spread": {
                name: {"used": used, "needed": then.needed[name]}
                for name, used in then.used.items()
            },
            "slowest_level": then.level,
            "slowest_level_needed": then.level_needed or "inside one node",
            "gb_per_s": {"now": then.gbs, "needed": then.gbs_needed},
            "score": round(then.score, 4),
            "share": round(share, 4),
            "assumptions": [
                "link speeds are those of analyzers/topology/levels.csv, not measured",
                "what crosses the link does not overlap with work: an upper bound",
                "CPU, memory and taints of the nearer nodes are not checked",
                *(() if net is not None else ("all PCIe traffic is between ranks",)),
            ],
        },
        recommendations=(
            Recommendation(
                verb="place it closer",
                target=f"{subject.workload_kind}/{subject.namespace}/{subject.workload}",
                why=f"{why}: ask for it with pod affinity, or topology-aware scheduling "
                "(Kueue's podset-required-topology, Volcano's networkTopology)",
                reversible=True,
                undo="remove the affinity or the topology request",
                gpu_hours_per_day=round(wasted_hours * 86_400 / window.seconds, 4),
                usd_per_day=compute_per_day(usd, window),
                caution="it takes effect at the next start, and a required topology may wait "
                "longer in the queue",
                effort="quick win",
                claims=costs.claims(gang.owner, share, WORKED),
            ),
        ),
    )


def build_subject(gang: PlacedGang) -> Subject:
    """Return the subject of a job: its workload, nodes and model."""
    row = gang.rows[0]
    nodes = tuple(sorted(r.node for r in gang.rows))[:MOST_NAMED]
    models = (row.model,) if row.model else ()
    return Subject(*gang.owner, team=row.team, nodes=nodes, models=models)


def _build_signals(traffic: RankTraffic) -> dict[str, str]:
    net = traffic.net_bps
    links = {"pcie": traffic.pcie_bps, "nvlink": traffic.nvlink_bps}
    seen = [f"{name} {bps / GIGA:.1f} GB/s" for name, bps in links.items() if bps is not None]
    return {
        "inventory": "the nodes of its pods and their labels",
        "links": ", ".join(seen) + " at the height of a typical hour" if seen else "unknown",
        "host": "unknown" if net is None else f"{net / GIGA:.2f} GB/s per pod on the network",
    }


def _explain(gang: PlacedGang, then: GangSpread) -> str:
    gpus = sum(row.gpus for row in gang.rows)
    parts = [
        f"{used} {name}s where {then.needed[name]} would do"
        for name, used in then.used.items()
        if used > then.needed[name]
    ]
    return f"{gpus} GPUs lie in " + ", ".join(parts)
