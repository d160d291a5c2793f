"""Find jobs that communicate and are spread over more zones, racks or nodes than they need."""

from collections.abc import Mapping
from datetime import UTC
from typing import Any

from analyzers.queries import load_sql
from analyzers.topology.gangs import (
    PlacedGang,
    compare_gangs,
    find_used_nodes,
    list_rank_kinds,
    read_nodes,
    select_pool_nodes,
)
from analyzers.topology.rank_traffic import GIGA, read_traffic
from analyzers.topology.spread import GangSpread, compare_spread
from analyzers.work import (
    MOST_NAMED,
    WORKED,
    Owner,
    WorkloadCosts,
    compute_per_day,
    compute_share,
    read_costs,
)
from fallow.models import Evidence, Finding, Recommendation, Subject, Unjudged, finding_id
from fallow.protocols import Views
from fallow.settings import TopologySettings
from fallow.window import Window

ANALYZER, KIND = "topology", "spread_gang"
FULL = "no narrower place of its size was free when it started"
SILENT = "nobody measures whether its ranks talk: neither pod network nor PCIe nor NVLink"


class TopologyAnalyzer:
    """Find jobs that wait for links slower than their size needs.

    Source: telemetry-and-waste.md#topology.
    """

    def __init__(self, settings: TopologySettings | None = None) -> None:
        self.settings = settings or TopologySettings()

    def find(self, views: Views, window: Window) -> list[Finding]:
        """Return jobs that are spread too widely and communicate, the most GPU-hours first."""
        gangs = [g for g in self._gangs(views, window) if g.then and self._wide(g.then)]
        if not gangs:
            return []
        talk, costs = read_traffic(views, window, gangs), read_costs(views, window)
        findings = [
            finding
            for g in gangs
            if (finding := self._build_finding(g, talk[g.number], window, costs))
        ]
        return sorted(findings, key=lambda f: (-f.gpu_hours, f.id))

    def unjudged(self, views: Views, window: Window) -> list[Unjudged]:
        """Return jobs spread for lack of capacity, and jobs with unknown rank communication."""
        gangs = self._gangs(views, window)
        talk = read_traffic(views, window, gangs)
        unjudged = []
        for gang in gangs:
            hours = sum(row["hours"] for row in gang.rows)
            if gang.then is None or not self._wide(gang.then):
                unjudged.append(Unjudged(_build_subject(gang), hours, (FULL,)))
            elif all(value is None for value in talk[gang.number].values()):
                unjudged.append(Unjudged(_build_subject(gang), hours, (SILENT,)))
        return unjudged

    def _wide(self, lies: GangSpread) -> bool:
        return lies.score < self.settings.score

    def _gangs(self, views: Views, window: Window) -> list[PlacedGang]:
        """Return jobs that are spread more widely than the fleet's size requires."""
        bounds = {"since": window.start, "until": window.end}
        rows = views.query(load_sql("topology/gangs"), {**bounds, "kinds": list_rank_kinds()})
        by_owner: dict[Owner, list[dict[str, Any]]] = {}
        for row in rows.to_pylist():
            owner = row["cluster"], row["namespace"], row["workload_kind"], row["workload"]
            by_owner.setdefault(owner, []).append(row)
        if not by_owner:
            return []
        site = read_nodes(views)
        gangs: list[PlacedGang] = []
        for placed in by_owner.values():
            models = {row["model"] for row in placed}
            hours = sum(row["hours"] for row in placed)
            if len(models) > 1 or None in models or hours < self.settings.least_gpu_hours:
                continue
            places = site.get((placed[0]["cluster"], placed[0]["model"]), {})
            used = find_used_nodes(placed, places)
            lies = compare_spread(used, select_pool_nodes(used, places), placed[0]["model"])
            if self._wide(lies):
                gangs.append(PlacedGang(len(gangs), tuple(placed), lies))
        return list(compare_gangs(views, gangs, site))

    def _build_finding(
        self,
        gang: PlacedGang,
        talk: Mapping[str, float | None],
        window: Window,
        costs: WorkloadCosts,
    ) -> Finding | None:
        then = gang.then
        net = talk["net_bps"]
        heard = net if net is not None else talk["pcie_bps"]
        if then is None or heard is None or heard < self.settings.talk_gbs * GIGA:
            return None
        # A node's pods communicate over the same link: the link belongs to the node.
        pods = max(len(row["pods"]) for row in gang.rows)
        busy = min(1.0, heard * (pods if net is not None else 1) / GIGA / then.gbs)
        placed = min(1.0, sum(row["hours"] for row in gang.rows) / gang.rows[0]["all_hours"])
        share = busy * (1 - then.score) * placed
        total = costs.total(gang.owner, WORKED)
        hours = gang.rows[0]["all_hours"] if total is None else total.gpu_hours
        subject = _build_subject(gang)
        start = max(window.start, gang.rows[0]["started_at"].replace(tzinfo=UTC))
        end = min(window.end, max(row["until"] for row in gang.rows).replace(tzinfo=UTC))
        evidence: Evidence = "confirmed" if net is not None else "suspected"
        usd = None if total is None or total.usd is None else compute_share(total.usd, share)
        wasted_hours = round(hours * share, 6)
        why = _explain(gang, then)
        return Finding(
            id=finding_id(ANALYZER, KIND, subject, start),
            analyzer=ANALYZER,
            kind=KIND,
            subject=subject,
            window=Window(start, end),
            verdict="wasteful",
            evidence=evidence,
            confidence=0.9 if evidence == "confirmed" else 0.45,
            gpu_hours=wasted_hours,
            usd=usd,
            details={
                "why": why,
                "witnesses": _build_signals(talk, net),
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
                    "CPU, memory and taints of the nearer nodes are not looked at",
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


def _build_signals(talk: Mapping[str, float | None], net: float | None) -> dict[str, str]:
    links = {n: talk[n] for n in ("pcie_bps", "nvlink_bps")}
    seen = [f"{n[:-4]} {v / GIGA:.1f} GB/s" for n, v in links.items() if v is not None]
    return {
        "inventory": "the nodes of its pods and their labels",
        "links": ", ".join(seen) + " at the height of a typical hour" if seen else "unknown",
        "host": "unknown" if net is None else f"{net / GIGA:.2f} GB/s per pod on the network",
    }


def _explain(gang: PlacedGang, then: GangSpread) -> str:
    gpus = sum(row["gpus"] for row in gang.rows)
    parts = [
        f"{used} {name}s where {then.needed[name]} would do"
        for name, used in then.used.items()
        if used > then.needed[name]
    ]
    return f"{gpus} GPUs lie in " + ", ".join(parts)


def _build_subject(gang: PlacedGang) -> Subject:
    row = gang.rows[0]
    nodes = tuple(sorted(r["node"] for r in gang.rows))[:MOST_NAMED]
    models = (row["model"],) if row["model"] else ()
    return Subject(*gang.owner, team=row["team"], nodes=nodes, models=models)
