"""Sum what incidents cost, by job, node, GPU, model and cause, with the MTBF and who is worse.

    Incident ─► price_incident ─► lost work + recovery, GPU-hours and dollars
    ledger ───► exposure.sql ───► hours in which failures could happen ─► rates.py ─► IncidentGroup

A node or GPU answers only for incidents whose first cause is of the class device or node and whose
evidence names it: a job that fails by itself on a node is not the node's. A reclaim of a spot node
is a cause of its own and nobody's failure.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Literal

import msgspec

from analyzers.money import SMALLEST
from analyzers.queries import load_sql
from analyzers.reliability.incidents.rates import (
    PeerTest,
    compare_with_peers,
    compute_trend,
)
from analyzers.reliability.incidents.records import Incident
from fallow.checkpointing import Mtbf, compute_mtbf
from fallow.protocols import Views
from fallow.rows import Row, decode_rows
from fallow.window import Window

Dimension = Literal["job", "node", "gpu", "model", "cause"]
DIMENSIONS: tuple[Dimension, ...] = ("job", "node", "gpu", "model", "cause")
FLEET = ("all", "", "")
PHYSICAL = frozenset({"device", "node"})
MONTH_DAYS = 30
HANGS = frozenset({"stall_confirmed", "stall_suspected"})


class Exposure(Row, frozen=True):
    """Hours and dollars in which a subject could fail (`exposure.sql`); usd None = no price."""

    dimension: str
    cluster: str
    subject: str
    peers: str
    hours: float
    gpu_hours: float
    usd: Decimal | None


class IncidentCost(msgspec.Struct, frozen=True):
    """What an incident cost; None = unknown."""

    lost_gpu_hours: float | None
    most_lost_gpu_hours: float | None
    """The bound of lost work that is not known."""
    recovery_gpu_hours: float | None
    """From the first sign to the first work of the replacement, or while the job hung."""
    usd: Decimal | None

    @property
    def gpu_hours(self) -> float | None:
        """Return both together; None = one is not known."""
        return add_hours((self.lost_gpu_hours, self.recovery_gpu_hours))


class Recycling(msgspec.Struct, frozen=True):
    """What taking a node or GPU out of service costs once, and saves in 30 days; estimates."""

    cost_gpu_hours: float
    """Its workloads restart elsewhere: its GPUs times the mean time to recover."""
    cost_usd: Decimal | None
    saved_gpu_hours: float
    """Failures beyond its peers' rate times the mean cost of its incidents."""
    saved_usd: Decimal | None


class IncidentGroup(msgspec.Struct, frozen=True):
    """The incidents of one job, node, GPU, model or cause, and how often they come."""

    cluster: str
    subject: str
    incidents: int
    mtbf: Mtbf | None
    """None = the ledger has no hours of it."""
    gpu_hours: float | None
    """Of lost work and recovery; None = that of an incident is not known."""
    lost_gpu_hours: float | None
    most_lost_gpu_hours: float | None
    """With the bound of each that is not known; None = one has no bound."""
    usd: Decimal | None
    unknown: int
    """Incidents whose lost work or recovery is not known."""
    before: int
    after: int
    trend_p: float | None
    peers: PeerTest | None = None
    recycling: Recycling | None = None


class RecoveryShare(msgspec.Struct, frozen=True):
    """The part of all paid time and dollars that went into lost work and recovery."""

    incidents: int
    unknown: int
    """Incidents whose lost work or recovery is not known."""
    lost_gpu_hours: float | None
    """None = that of an incident is not known."""
    most_lost_gpu_hours: float | None
    """With the bound of each that is not known; None = one has no bound."""
    recovery_gpu_hours: float | None
    gpu_hours: float
    """Paid in the window."""
    share: float | None
    usd: Decimal | None
    paid_usd: Decimal | None
    usd_share: float | None


Exposures = Mapping[tuple[str, str, str], Exposure]


def read_exposure(
    views: Views, window: Window, cluster: str | None = None
) -> dict[tuple[str, str, str], Exposure]:
    """Return the hours in which failures could happen, by dimension, cluster and subject.

    `cluster` narrows them to one cluster.
    """
    sql = load_sql("reliability/incidents/exposure")
    table = views.query(sql, {**window.bounds(), "cluster": cluster})
    return {(e.dimension, e.cluster, e.subject): e for e in decode_rows(table, Exposure)}


def price_incident(incident: Incident, exposures: Exposures) -> IncidentCost:
    """Return what an incident cost, at the mean price of its workloads' GPU-hours."""
    lost, most = incident.lost.gpu_hours, incident.lost.most
    most, down = most if lost is None else lost, _measure_recovery(incident)
    jobs = [exposures.get(("job", o[0], f"{o[2]}/{o[1]}/{o[3]}")) for o in incident.owners]
    bills = [job for job in jobs if job is not None]
    hours = sum(bill.gpu_hours for bill in bills)
    amounts = [bill.usd for bill in bills if bill.usd is not None]
    if lost is None or down is None or not hours or len(amounts) < len(jobs):
        return IncidentCost(lost, most, down, None)
    rate = sum(amounts, Decimal()) / Decimal(repr(hours))
    usd = rate * Decimal(repr(lost + down))
    return IncidentCost(lost, most, down, usd.quantize(SMALLEST))


def add_hours(hours: Iterable[float | None]) -> float | None:
    """Return the sum; None = a part of it is not known."""
    parts = list(hours)
    return None if None in parts else round(sum(part or 0.0 for part in parts), 6)


def _measure_recovery(incident: Incident) -> float | None:
    if incident.recovery_gpu_hours is not None:
        return incident.recovery_gpu_hours
    if incident.recovery_s is not None:
        return round(incident.recovery_s * incident.gpus / 3600, 6)
    hangs = [s for s in incident.signals if s.name in HANGS]
    if not hangs:
        return None
    seconds = (max(s.end for s in hangs) - min(s.at for s in hangs)).total_seconds()
    return round(seconds * incident.gpus / 3600, 6)


def compute_recovery_share(incidents: Sequence[Incident], exposures: Exposures) -> RecoveryShare:
    """Return the share of paid time and dollars that incidents took."""
    costs = [price_incident(i, exposures) for i in incidents]
    paid = exposures.get(FLEET)
    hours = paid.gpu_hours if paid else 0.0
    cost_hours, usd = add_hours(c.gpu_hours for c in costs), _sum_usd(costs)
    bill = paid.usd if paid else None
    return RecoveryShare(
        incidents=len(incidents),
        unknown=sum(1 for c in costs if c.gpu_hours is None),
        lost_gpu_hours=add_hours(c.lost_gpu_hours for c in costs),
        most_lost_gpu_hours=add_hours(c.most_lost_gpu_hours for c in costs),
        recovery_gpu_hours=add_hours(c.recovery_gpu_hours for c in costs),
        gpu_hours=hours,
        share=cost_hours / hours if hours and cost_hours is not None else None,
        usd=usd,
        paid_usd=bill,
        usd_share=float(usd / bill) if usd is not None and bill else None,
    )


def group_incidents(
    incidents: Sequence[Incident],
    by: Dimension,
    exposures: tuple[Exposures, Exposures],
    split: datetime,
) -> list[IncidentGroup]:
    """Return the incidents of each subject, the most expensive first; naive UTC.

    `exposures` are those before and after `split`. Subjects without an incident are left out. The
    cost of an incident of several subjects is divided by their GPUs.
    """
    first, second = exposures
    whole = _add_exposures(first, second)
    theirs: dict[tuple[str, str], list[Incident]] = defaultdict(list)
    parts: dict[tuple[str, tuple[str, str]], float] = {}
    for incident in incidents:
        for key in _list_subjects(incident, by, whole):
            theirs[key].append(incident)
            parts[incident.id, key] = _get_gpus(whole.get((by, *key)))
    sums: dict[str, float] = defaultdict(float)
    for (of, _), gpus in parts.items():
        sums[of] += gpus
    tests = _compare(theirs, by, whole) if by in {"node", "gpu"} else {}
    groups = []
    for (cluster, subject), mine in theirs.items():
        place = FLEET if by == "cause" else (by, cluster, subject)
        costs = [
            _apportion(price_incident(i, whole), parts[i.id, (cluster, subject)] / sums[i.id])
            for i in mine
        ]
        before = sum(1 for i in mine if i.start < split)
        hours = [_get_hours(part, place) for part in (first, second)]
        peers = tests.get((cluster, subject))
        groups.append(
            IncidentGroup(
                cluster=cluster,
                subject=subject,
                incidents=len(mine),
                mtbf=compute_mtbf(len(mine), sum(hours)) if sum(hours) else None,
                gpu_hours=add_hours(c.gpu_hours for c in costs),
                lost_gpu_hours=add_hours(c.lost_gpu_hours for c in costs),
                most_lost_gpu_hours=add_hours(c.most_lost_gpu_hours for c in costs),
                usd=_sum_usd(costs),
                unknown=sum(1 for c in costs if c.gpu_hours is None),
                before=before,
                after=len(mine) - before,
                trend_p=compute_trend(before, hours[0], len(mine) - before, hours[1]),
                peers=peers,
                recycling=_plan_recycling(mine, costs, peers, whole.get(place), whole.get(FLEET)),
            )
        )
    return sorted(groups, key=lambda g: (-(g.usd or Decimal()), -(g.gpu_hours or 0.0), g.subject))


def _get_gpus(exposure: Exposure | None) -> float:
    """Return the mean GPUs of a subject: by them the cost of an incident is divided."""
    return exposure.gpu_hours / exposure.hours if exposure is not None and exposure.hours else 1.0


def _apportion(cost: IncidentCost, part: float) -> IncidentCost:
    hours = (cost.lost_gpu_hours, cost.most_lost_gpu_hours, cost.recovery_gpu_hours)
    lost, most, down = (None if h is None else h * part for h in hours)
    usd = cost.usd
    return IncidentCost(
        lost,
        most,
        down,
        None if usd is None else (usd * Decimal(repr(part))).quantize(SMALLEST),
    )


def _list_subjects(
    incident: Incident, by: Dimension, exposures: Exposures
) -> Iterator[tuple[str, str]]:
    if by == "cause":
        yield "", incident.verdict.cause
    elif by == "job":
        for cluster, namespace, kind, name in incident.owners:
            yield cluster, f"{kind}/{namespace}/{name}"
    elif by == "model":
        yield from sorted({("", model) for model in _list_models(incident, exposures)})
    else:
        for name in _list_blamed(incident, by):
            yield incident.cluster, name


def _list_models(incident: Incident, exposures: Exposures) -> Iterator[str]:
    keys = [("gpu", incident.cluster, device) for device in incident.devices] or [
        ("job", o[0], f"{o[2]}/{o[1]}/{o[3]}") for o in incident.owners
    ]
    for key in keys:
        if key in exposures:
            yield exposures[key].peers


def _list_blamed(incident: Incident, by: Dimension) -> list[str]:
    """Return the nodes or GPUs that the evidence of the first cause names."""
    if incident.verdict.class_ not in PHYSICAL:
        return []
    named = {
        name
        for cause in incident.verdict.causes
        if cause.cause == incident.verdict.cause
        for name in cause.signals
    }
    blamed = [s for s in incident.signals if s.name in named and (s.device or s.owner is None)]
    blamed = blamed or [s for s in incident.signals if s.name in named]
    return sorted({s.device if by == "gpu" else s.node for s in blamed} - {""})


def _compare(
    theirs: Mapping[tuple[str, str], Sequence[Incident]], by: Dimension, exposures: Exposures
) -> dict[tuple[str, str], PeerTest]:
    """Return the test of each subject against those of its cluster and model.

    The p-values are corrected within one model of one cluster.
    """
    hours: dict[tuple[str, str], dict[str, float]] = defaultdict(dict)
    for (dimension, cluster, subject), exposure in exposures.items():
        if dimension == by:
            hours[cluster, exposure.peers][subject] = exposure.hours
    tests = {}
    for (cluster, _), lengths in hours.items():
        counts = {name: len(theirs.get((cluster, name), ())) for name in lengths}
        for name, test in compare_with_peers(counts, lengths).items():
            tests[cluster, name] = test
    return tests


def _plan_recycling(
    incidents: Sequence[Incident],
    costs: Sequence[IncidentCost],
    peers: PeerTest | None,
    own: Exposure | None,
    fleet: Exposure | None,
) -> Recycling | None:
    """Return the estimate for a subject that is worse than its peers; None = it is not."""
    seconds = [i.recovery_s for i in incidents if i.recovery_s is not None]
    amounts = [c.gpu_hours for c in costs if c.gpu_hours is not None]
    if peers is None or not peers.is_worse or own is None or not seconds or not amounts:
        return None
    gpus = own.gpu_hours / own.hours
    cost = gpus * sum(seconds) / len(seconds) / 3600
    beyond = max(len(incidents) - peers.expected, 0.0)
    saved = beyond * sum(amounts) / len(amounts) * MONTH_DAYS * 24 / own.hours
    rate = None
    if fleet is not None and fleet.usd is not None and fleet.gpu_hours:
        rate = fleet.usd / Decimal(repr(fleet.gpu_hours))
    return Recycling(
        round(cost, 3), _price(cost, rate), round(saved, 3), _price(saved, rate)
    )  # fmt: skip


def _price(gpu_hours: float, rate: Decimal | None) -> Decimal | None:
    return None if rate is None else (rate * Decimal(repr(gpu_hours))).quantize(SMALLEST)


def _sum_usd(costs: Iterable[IncidentCost]) -> Decimal | None:
    """Return the dollars of all costs; None = that of one is not known or has no price."""
    amounts = [cost.usd for cost in costs]
    if not amounts or None in amounts:
        return None
    return sum((usd or Decimal() for usd in amounts), Decimal())


def _get_hours(exposures: Exposures, key: tuple[str, str, str]) -> float:
    exposure = exposures.get(key)
    return exposure.hours if exposure is not None else 0.0


def _add_exposures(first: Exposures, second: Exposures) -> dict[tuple[str, str, str], Exposure]:
    added = dict(first)
    for key, exposure in second.items():
        before = added.get(key)
        if before is None:
            added[key] = exposure
            continue
        priced = before.usd is not None and exposure.usd is not None
        added[key] = msgspec.structs.replace(
            exposure,
            hours=before.hours + exposure.hours,
            gpu_hours=before.gpu_hours + exposure.gpu_hours,
            usd=(before.usd or Decimal()) + (exposure.usd or Decimal()) if priced else None,
        )
    return added
