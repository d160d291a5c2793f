"""Find jobs that communicate and are spread over more zones, racks or nodes than they need."""

from analyzers.topology.findings import build_finding, build_subject
from analyzers.topology.gangs import (
    PlacedGang,
    compare_gangs,
    find_used_nodes,
    list_rank_kinds,
    read_nodes,
    select_pool_nodes,
)
from analyzers.topology.rank_traffic import GIGA, read_traffic
from analyzers.topology.rows import GangPlacement, read_placements
from analyzers.topology.spread import GangSpread, compare_spread
from analyzers.work import read_costs
from analyzers.workload_rows import Owner
from fallow.models import Finding, Unjudged
from fallow.protocols import Views
from fallow.settings.workloads import TopologySettings
from fallow.window import Window

FULL = "no narrower place of its size was free when it started"
SILENT = "whether its ranks communicate is not measured: neither pod network nor PCIe nor NVLink"


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
        traffic, costs = read_traffic(views, window, gangs), read_costs(views, window)
        least_bps = self.settings.talk_gbs * GIGA
        findings = [
            finding
            for g in gangs
            if (finding := build_finding(g, traffic[g.number], window, costs, least_bps))
        ]
        return sorted(findings, key=lambda f: (-f.gpu_hours, f.id))

    def unjudged(self, views: Views, window: Window) -> list[Unjudged]:
        """Return jobs spread for lack of capacity, and jobs with unknown rank communication."""
        gangs = self._gangs(views, window)
        traffic = read_traffic(views, window, gangs)
        unjudged = []
        for gang in gangs:
            if gang.then is None or not self._wide(gang.then):
                unjudged.append(Unjudged(build_subject(gang), gang.hours, (FULL,)))
            elif not traffic[gang.number].is_measured:
                unjudged.append(Unjudged(build_subject(gang), gang.hours, (SILENT,)))
        return unjudged

    def _wide(self, lies: GangSpread) -> bool:
        return lies.score < self.settings.score

    def _gangs(self, views: Views, window: Window) -> list[PlacedGang]:
        """Return jobs that are spread more widely than the fleet's size requires."""
        by_owner: dict[Owner, list[GangPlacement]] = {}
        for row in read_placements(views, window, list_rank_kinds()):
            by_owner.setdefault(row.owner, []).append(row)
        if not by_owner:
            return []
        site = read_nodes(views)
        gangs: list[PlacedGang] = []
        for placed in by_owner.values():
            models = {row.model for row in placed}
            hours = sum(row.hours for row in placed)
            if len(models) > 1 or None in models or hours < self.settings.least_gpu_hours:
                continue
            places = site.get((placed[0].cluster, placed[0].model), {})
            used = find_used_nodes(placed, places)
            lies = compare_spread(used, select_pool_nodes(used, places), placed[0].model)
            if self._wide(lies):
                gangs.append(PlacedGang(len(gangs), tuple(placed), lies))
        return list(compare_gangs(views, gangs, site))
