"""Topology: jobs spread over more zones, racks or nodes than their size needs, while they talk."""

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any

import msgspec

from analyzers.idle import Unjudged
from analyzers.queries import rows_of, sql
from analyzers.topology.spread import Place, Spread, blocks, spread
from analyzers.work import MOST_NAMED, WORKED, Bill, Owner, bill, part, per_day
from fallow.nouns import Evidence, Finding, Recommendation, Subject, finding_id
from fallow.seams import Views
from fallow.settings import TopologySettings
from fallow.window import Window

ANALYZER, KIND = "topology", "spread_gang"
HOST_DAYS = 2
GIGA = 1e9
MICRO = 1_000_000
Row = Mapping[str, Any]
FULL = "no narrower place of its size was free when it started"
SILENT = "nobody measures whether its ranks talk: neither pod network nor PCIe nor NVLink"


class Gang(msgspec.Struct, frozen=True):
    """A job on several nodes: its rows by node, how it lies, and how it could have lain."""

    number: int
    rows: tuple[dict[str, Any], ...]
    lies: Spread
    then: Spread | None = None
    """Against what was free when it started."""

    @property
    def owner(self) -> Owner:
        """Return the key of its workload."""
        row = self.rows[0]
        return row["cluster"], row["namespace"], row["workload_kind"], row["workload"]


class TopologyAnalyzer:
    """Find jobs that wait for links slower than their size needs (domain.md section 2.9)."""

    def __init__(self, settings: TopologySettings | None = None) -> None:
        self.settings = settings or TopologySettings()

    def find(self, views: Views, window: Window) -> list[Finding]:
        """Return jobs that lie too wide and talk, the most GPU-hours first."""
        gangs = [g for g in self._gangs(views, window) if g.then and self._wide(g.then)]
        if not gangs:
            return []
        talk, costs = _talk(views, window, gangs), bill(views, window)
        found = [made for g in gangs if (made := self._made(g, talk[g.number], window, costs))]
        return sorted(found, key=lambda f: (-f.gpu_hours, f.id))

    def unjudged(self, views: Views, window: Window) -> list[Unjudged]:
        """Return jobs that lie wide for want of room, or of which nobody knows if they talk."""
        gangs = self._gangs(views, window)
        talk = _talk(views, window, gangs)
        found = []
        for gang in gangs:
            hours = sum(row["hours"] for row in gang.rows)
            if gang.then is None or not self._wide(gang.then):
                found.append(Unjudged(_subject(gang), hours, (FULL,)))
            elif all(value is None for value in talk[gang.number].values()):
                found.append(Unjudged(_subject(gang), hours, (SILENT,)))
        return found

    def _wide(self, lies: Spread) -> bool:
        return lies.score < self.settings.score

    def _gangs(self, views: Views, window: Window) -> list[Gang]:
        """Return jobs that lie wider than the fleet's size makes them."""
        asked = {"since": window.start, "until": window.end}
        rows = views.query(sql("topology/gangs"), {**asked, "kinds": list(_gang_kinds())})
        by_owner: dict[Owner, list[dict[str, Any]]] = {}
        for row in rows.to_pylist():
            owner = row["cluster"], row["namespace"], row["workload_kind"], row["workload"]
            by_owner.setdefault(owner, []).append(row)
        if not by_owner:
            return []
        site = _site(views)
        found: list[Gang] = []
        for placed in by_owner.values():
            models = {row["model"] for row in placed}
            hours = sum(row["hours"] for row in placed)
            if len(models) > 1 or None in models or hours < self.settings.least_gpu_hours:
                continue
            places = site.get((placed[0]["cluster"], placed[0]["model"]), {})
            used = _used(placed, places)
            lies = spread(used, _pooled(used, places), placed[0]["model"])
            if self._wide(lies):
                found.append(Gang(len(found), tuple(placed), lies))
        return list(_then(views, found, site))

    def _made(
        self, gang: Gang, talk: Mapping[str, float | None], window: Window, costs: Bill
    ) -> Finding | None:
        then = gang.then
        net = talk["net_bps"]
        heard = net if net is not None else talk["pcie_bps"]
        if then is None or heard is None or heard < self.settings.talk_gbs * GIGA:
            return None
        # A node's pods talk together: the link is the node's.
        pods = max(len(row["pods"]) for row in gang.rows)
        busy = min(1.0, heard * (pods if net is not None else 1) / GIGA / then.gbs)
        placed = min(1.0, sum(row["hours"] for row in gang.rows) / gang.rows[0]["all_hours"])
        share = busy * (1 - then.score) * placed
        total = costs.total(gang.owner, WORKED)
        hours = gang.rows[0]["all_hours"] if total is None else total.gpu_hours
        subject = _subject(gang)
        start = max(window.start, gang.rows[0]["moment"].replace(tzinfo=UTC))
        end = min(window.end, max(row["until"] for row in gang.rows).replace(tzinfo=UTC))
        evidence: Evidence = "confirmed" if net is not None else "suspected"
        usd = None if total is None or total.usd is None else part(total.usd, share)
        found = round(hours * share, 6)
        why = _why(gang, then)
        return Finding(
            id=finding_id(ANALYZER, KIND, subject, start),
            analyzer=ANALYZER,
            kind=KIND,
            subject=subject,
            window=Window(start, end),
            verdict="wasteful",
            evidence=evidence,
            confidence=0.9 if evidence == "confirmed" else 0.45,
            gpu_hours=found,
            usd=usd,
            details={
                "why": why,
                "witnesses": _witnesses(talk, net),
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
                    gpu_hours_per_day=round(found * 86_400 / window.seconds, 4),
                    usd_per_day=per_day(usd, window),
                    caution="it takes effect at the next start, and a required topology may wait "
                    "longer in the queue",
                    effort="quick win",
                    claims=costs.claims(gang.owner, share, WORKED),
                ),
            ),
        )


def _site(views: Views) -> dict[tuple[str, str | None], dict[str, Place]]:
    """Return the nodes of each cluster and model."""
    found: dict[tuple[str, str | None], dict[str, Place]] = {}
    for row in views.query(sql("topology/nodes")).to_pylist():
        where = blocks(row["node"], row["zone"], row["labels"])
        place = Place(row["node"], row["gpus"], where, row["pool"])
        found.setdefault((row["cluster"], row["model"]), {})[row["node"]] = place
    return found


def _used(rows: Sequence[Row], places: Mapping[str, Place]) -> list[Place]:
    return [msgspec.structs.replace(places[row["node"]], gpus=row["gpus"]) for row in rows]


def _pooled(used: Sequence[Place], places: Mapping[str, Place]) -> list[Place]:
    """Return the nodes of the pools that a job lies in: it may be tied to them."""
    pools = {place.pool for place in used}
    return [place for place in places.values() if place.pool in pools]


def _then(
    views: Views, gangs: list[Gang], site: Mapping[tuple[str, str | None], Mapping[str, Place]]
) -> Iterator[Gang]:
    """Compare each job with what was free when it started, its own GPUs among it."""
    if not gangs:
        return
    asked = [
        {
            "gang": gang.number, "cluster": gang.rows[0]["cluster"],
            "model": gang.rows[0]["model"], "moment": _micro(gang.rows[0]["moment"]),
        }
        for gang in gangs
    ]  # fmt: skip
    taken: dict[int, dict[str, int]] = {}
    for row in views.query(sql("topology/taken"), {"gangs": json.dumps(asked)}).to_pylist():
        taken.setdefault(row["gang"], {})[row["node"]] = row["gpus"]
    for gang in gangs:
        places = site[gang.rows[0]["cluster"], gang.rows[0]["model"]]
        gone = taken.get(gang.number, {})
        used = _used(gang.rows, places)
        own = {place.node: place.gpus for place in used}
        free = [
            msgspec.structs.replace(
                place,
                gpus=max(
                    own.get(place.node, 0),
                    place.gpus - gone.get(place.node, 0) + own.get(place.node, 0),
                ),
            )
            for place in _pooled(used, places)
        ]
        then = spread(used, free, gang.rows[0]["model"])
        yield msgspec.structs.replace(gang, then=then)


def _talk(views: Views, window: Window, gangs: list[Gang]) -> dict[int, dict[str, float | None]]:
    """Return bytes a second: per pod on the network (the last days), per device over its links."""
    found: dict[int, dict[str, float | None]] = {
        gang.number: {"net_bps": None, "pcie_bps": None, "nvlink_bps": None} for gang in gangs
    }
    if not gangs:
        return found
    devices = [
        {
            "gang": gang.number, "cluster": row["cluster"], "device": device,
            "since": _micro(row["moment"]), "until": _micro(row["until"]),
        }
        for gang in gangs for row in gang.rows for device in row["devices"]
    ]  # fmt: skip
    asked = {"since": window.start, "until": window.end}
    told = views.query(sql("topology/links"), {**asked, "devices": json.dumps(devices)})
    for row in told.to_pylist():
        found[row["gang"]] |= {n: row[n] for n in ("pcie_bps", "nvlink_bps")}
    of_pod = {
        (row["cluster"], row["namespace"], pod): gang.number
        for gang in gangs for row in gang.rows for pod in row["pods"]
    }  # fmt: skip
    names = [dict(zip(("cluster", "namespace", "pod"), key, strict=True)) for key in of_pod]
    since = max(window.start, window.end - timedelta(days=HOST_DAYS))
    heard: dict[int, list[float]] = {}
    hosts = {"since": since, "until": window.end, "pods": json.dumps(names)}
    for row in views.query(sql("sizing/hosts"), hosts).to_pylist():
        if row["net_bps"] is not None:
            number = of_pod[row["cluster"], row["namespace"], row["pod"]]
            heard.setdefault(number, []).append(row["net_bps"])
    for number, rates in heard.items():
        found[number]["net_bps"] = sum(rates) / len(rates)
    return found


def _witnesses(talk: Mapping[str, float | None], net: float | None) -> dict[str, str]:
    links = {n: talk[n] for n in ("pcie_bps", "nvlink_bps")}
    seen = [f"{n[:-4]} {v / GIGA:.1f} GB/s" for n, v in links.items() if v is not None]
    return {
        "inventory": "the nodes of its pods and their labels",
        "links": ", ".join(seen) + " at the height of a typical hour" if seen else "unknown",
        "host": "unknown" if net is None else f"{net / GIGA:.2f} GB/s per pod on the network",
    }


def _why(gang: Gang, then: Spread) -> str:
    gpus = sum(row["gpus"] for row in gang.rows)
    parts = [
        f"{used} {name}s where {then.needed[name]} would do"
        for name, used in then.used.items()
        if used > then.needed[name]
    ]
    return f"{gpus} GPUs lie in " + ", ".join(parts)


def _subject(gang: Gang) -> Subject:
    row = gang.rows[0]
    nodes = tuple(sorted(r["node"] for r in gang.rows))[:MOST_NAMED]
    models = (row["model"],) if row["model"] else ()
    return Subject(*gang.owner, team=row["team"], nodes=nodes, models=models)


def _micro(moment: datetime) -> int:
    return round(moment.replace(tzinfo=UTC).timestamp() * MICRO)


@cache
def _gang_kinds() -> tuple[str, ...]:
    """Return the kinds whose pods are ranks of one job."""
    rows = rows_of("workload_kinds")
    kinds = [r["workload_kind"] for r in rows if r["kind"] == "idle_job"]
    return (*kinds, "LeaderWorkerSet")
