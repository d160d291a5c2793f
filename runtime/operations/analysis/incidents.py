"""Read the incidents of a window as rows of a document: verdict, evidence, who suffered."""

import shlex
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa

from analyzers.reliability.incidents.reading import read_incidents
from analyzers.reliability.incidents.records import Incident
from analyzers.reliability.incidents.recovery import (
    DIMENSIONS,
    Dimension,
    IncidentCost,
    IncidentGroup,
    RecoveryShare,
    compute_recovery_share,
    group_incidents,
    price_incident,
    read_exposure,
)
from analyzers.reliability.incidents.tables import list_leading_signals, read_owner_commands
from dashboards.figures import spend
from dashboards.figures.health import SickNode, list_sick_nodes
from dashboards.figures.query import Filters
from dashboards.text import format_lost
from fallow.errors import UsageError
from fallow.models import Finding
from fallow.tables import get_schema
from fallow.window import Window
from runtime.operations.accounting import windows
from runtime.operations.analysis.analyzer_runs import load_analyzers
from warehouse.incidents import CONTINUED, IncidentSign, extend_to_first_signs, write_incidents

if TYPE_CHECKING:
    from warehouse.lake import Warehouse

NOTE = (
    "steps are advice, hold means take none: Fallow acts only by a policy that enforces "
    "(`fallow plan`); it resets no GPU"
)
"""Said with every list of incidents."""
GROUP_NOTES = (
    "mtbf_low_h and mtbf_high_h: exact Poisson interval of 95 % (chi-square)",
    "worse: exact binomial test against the same model in the cluster, Holm-corrected, p < 0.05",
    "recycling is an estimate: its cost is one restart, its saving the failures beyond peers' rate",
)
STALLED = "stalled"


def list_incidents(
    warehouse: "Warehouse", window: Window, cluster: str | None = None
) -> list[Incident]:
    """Return the incidents of a window, oldest first; `cluster` narrows them to one cluster."""
    settings = warehouse.settings
    whole = extend_to_first_signs(warehouse, window)
    stalls = load_analyzers(settings, [STALLED])[STALLED].find(warehouse, whole)
    incidents = read_incidents(warehouse, whole, settings.reliability, stalls)
    since = window.bounds()["since"]
    return [i for i in incidents if i.end >= since and (cluster is None or i.cluster == cluster)]


def read_costs(
    warehouse: "Warehouse",
    window: Window,
    incidents: list[Incident],
    cluster: str | None = None,
) -> tuple[RecoveryShare, dict[str, IncidentCost]]:
    """Return the share of paid time and dollars that incidents took, and the cost of each by id."""
    exposures = read_exposure(warehouse, window, cluster)
    costs = {incident.id: price_incident(incident, exposures) for incident in incidents}
    return compute_recovery_share(incidents, exposures), costs


def check_dimension(word: str) -> Dimension:
    """Return what incidents are grouped by.

    Raises:
        UsageError: it is no dimension.
    """
    for dimension in DIMENSIONS:
        if word == dimension:
            return dimension
    raise UsageError(f"incidents by {word!r}: legal are {', '.join(DIMENSIONS)}")


def group_by(
    warehouse: "Warehouse",
    window: Window,
    incidents: list[Incident],
    by: Dimension,
    split: datetime | None = None,
    *,
    cluster: str | None = None,
) -> list[IncidentGroup]:
    """Return incidents by a dimension; the trend compares before and after `split` (the middle).

    Raises:
        UsageError: `split` is not inside the window.
    """
    middle = window.start + (window.end - window.start) / 2
    at = (split or middle).replace(minute=0, second=0, microsecond=0)
    if not window.start < at < window.end:
        raise UsageError(f"--split {at:%Y-%m-%dT%H:%MZ} is not inside the window {window}")
    sides = (
        read_exposure(warehouse, Window(window.start, at), cluster),
        read_exposure(warehouse, Window(at, window.end), cluster),
    )
    return group_incidents(incidents, by, sides, at.astimezone(UTC).replace(tzinfo=None))


def store_incidents(
    warehouse: "Warehouse", window: Window, stalls: Sequence[Finding], now: datetime
) -> list[Incident]:
    """Store the incidents of a window for pages and reports, and return them.

    `stalls` are the findings of the analyzer `stalled`.
    """
    whole = extend_to_first_signs(warehouse, window)
    recent = [finding for finding in stalls if finding.window.end > whole.start]
    read = read_incidents(warehouse, whole, warehouse.settings.reliability, recent)
    since = window.bounds()["since"] - CONTINUED
    incidents = [incident for incident in read if incident.end >= since]
    _, costs = read_costs(warehouse, whole, incidents)
    computed_at = now.astimezone(UTC).replace(tzinfo=None)
    rows = [{**_build_stored(i, costs[i.id]), "computed_at": computed_at} for i in incidents]
    schema = get_schema("incident")
    write_incidents(warehouse, pa.Table.from_pylist(rows, schema), window)
    return incidents


def _build_stored(incident: Incident, cost: IncidentCost) -> dict[str, Any]:
    """Return an incident as a row of the table `incident`, without the time of computing it."""
    verdict = incident.verdict
    owners = sorted({namespace for _, namespace, _, _ in incident.owners})
    lists = {
        "namespaces": owners,
        "workloads": [f"{space}/{kind}/{name}" for _, space, kind, name in incident.owners],
        "nodes": incident.nodes,
        "devices": incident.devices,
        "evidence": _describe_evidence(incident),
    }
    return {
        "id": incident.id,
        "cluster": incident.cluster,
        "start": incident.start,
        "end": incident.end,
        "known_at": incident.known_at,
        "cause": verdict.cause,
        "class": verdict.class_,
        "step": verdict.step,
        "why": "; ".join(verdict.holds) or verdict.why,
        **{name: msgspec.json.encode(value).decode() for name, value in lists.items()},
        "gpus": incident.gpus,
        "lost_gpu_hours": cost.lost_gpu_hours,
        "most_lost_gpu_hours": cost.most_lost_gpu_hours,
        "recovery_gpu_hours": cost.recovery_gpu_hours,
        "usd": cost.usd,
    }


class IncidentReport(msgspec.Struct, frozen=True):
    """The incidents of a window with their costs; `groups` only where they are asked for."""

    window: Window
    note: str
    incidents: list[Incident]
    share: RecoveryShare
    costs: dict[str, IncidentCost]
    by: Dimension | None
    groups: list[dict[str, Any]]
    sick: tuple[SickNode, ...]
    """The nodes that the page Health counts, by what the last analysis stored."""

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The incidents as rows of a table."""
        return [build_incident_row(i, self.costs[i.id]) for i in self.incidents]

    @property
    def owner_commands(self) -> list[str]:
        """The commands of owners whose objects have failed for good."""
        return [line for incident in self.incidents for line in list_owner_commands(incident)]

    @property
    def document(self) -> dict[str, Any]:
        """The fields of `fallow.incidents/v1`."""
        listed = [describe_incident(i, self.costs[i.id]) for i in self.incidents]
        more = {"by": self.by, "groups": self.groups} if self.by else {}
        notes = [NOTE, *(GROUP_NOTES if self.by else ())]
        return {
            "window": self.window, "recovery": self.share, "notes": notes, **more,
            "sick_nodes": self.sick, "incidents": listed,
        }  # fmt: skip


def read_report(
    warehouse: "Warehouse",
    window: str | None,
    *,
    now: datetime,
    cluster: str | None = None,
    by: str | None = None,
    split: datetime | None = None,
    only: str | None = None,
) -> IncidentReport:
    """Return the incidents of a window; with `by` also their groups; `only`: the one of this id.

    Raises:
        UsageError: the window, the dimension, the time of the split or the id is not legal.
    """
    dimension = check_dimension(by) if by else None
    chosen, note = windows.choose(warehouse, window, now, cluster)
    records = list_incidents(warehouse, chosen, cluster)
    if only:
        records = [i for i in records if i.id == only]
        if not records:
            raise UsageError(
                f"no incident {only!r} in {windows.format_window(chosen)}",
                hint="fallow incidents --window 30d lists more of them",
            )
    share, costs = read_costs(warehouse, chosen, records, cluster)
    paid = spend.read_totals(warehouse, chosen, Filters(cluster=cluster)).usd
    share = msgspec.structs.replace(share, paid_usd=paid)
    groups = (
        group_by(warehouse, chosen, records, dimension, split, cluster=cluster) if dimension else []
    )
    rows = [build_group_row(group, dimension) for group in groups] if dimension else []
    sick = list_sick_nodes(warehouse, chosen, Filters(cluster=cluster))
    return IncidentReport(chosen, note, records, share, costs, dimension, rows, sick)


def build_group_row(group: IncidentGroup, by: Dimension) -> dict[str, Any]:
    """Return a group as one row; null = not known.

    mtbf hours are clock hours of a job or node, GPU-hours of a model or cause. expected, p_worse
    (Holm), worse and the price of recycling are those of nodes and GPUs only.
    """
    mtbf, peers, recycling = group.mtbf, group.peers, group.recycling
    return {
        by: group.subject,
        "cluster": group.cluster or None,
        "incidents": group.incidents,
        "mtbf_h": mtbf and mtbf.mean_h,
        "mtbf_low_h": mtbf and mtbf.low_h,
        "mtbf_high_h": mtbf and mtbf.high_h,
        "hours": mtbf and mtbf.hours,
        "gpu_hours": group.gpu_hours,
        "lost_gpu_hours": group.lost_gpu_hours,
        "most_lost_gpu_hours": group.most_lost_gpu_hours,
        "usd": group.usd,
        "unknown_costs": group.unknown,
        "before": group.before,
        "after": group.after,
        "trend_p": group.trend_p,
        "expected": peers and peers.expected,
        "p_worse": peers and peers.p,
        "worse": peers and peers.is_worse,
        "recycle_gpu_hours": recycling and recycling.cost_gpu_hours,
        "recycle_usd": recycling and recycling.cost_usd,
        "saves_gpu_hours_30d": recycling and recycling.saved_gpu_hours,
        "saves_usd_30d": recycling and recycling.saved_usd,
    }


def build_incident_row(incident: Incident, cost: IncidentCost) -> dict[str, Any]:
    """Return an incident as one row of a table.

    gpus = those of its workloads; lost_gpu_hours null = not known; recovery_s null = no work of a
    replacement was seen; usd of lost work and recovery, null = unknown or without a price.
    """
    verdict = incident.verdict
    return {
        "start": _set_zone(incident.start),
        "cause": verdict.cause,
        "step": verdict.step,
        "nodes": ", ".join(incident.nodes),
        "workloads": ", ".join(_list_workloads(incident)),
        "why": "; ".join(verdict.holds) or verdict.why,
        "id": incident.id,
        "cluster": incident.cluster,
        "gpus": incident.gpus,
        "lost_gpu_hours": incident.lost.gpu_hours,
        "lost_basis": incident.lost.basis,
        "most_lost_gpu_hours": cost.most_lost_gpu_hours,
        "recovery_s": incident.recovery_s,
        "recovery_gpu_hours": cost.recovery_gpu_hours,
        "usd": cost.usd,
    }


def describe_share(share: RecoveryShare) -> str:
    """Return the share of recovery as a line for people."""
    lost = format_lost(share.lost_gpu_hours, share.most_lost_gpu_hours)
    parts = f"lost work {lost}, recovery {format_lost(share.recovery_gpu_hours, None)}"
    incidents = f"{share.incidents} incident{'s' * (share.incidents != 1)}"
    if share.share is None:
        return f"the cost of {share.incidents - share.unknown} of {incidents} is known: {parts}"
    dollars = "" if share.usd is None else f", ${share.usd:,.2f}"
    return f"{incidents} took {share.share:.2%} of the paid GPU-hours ({parts}{dollars})"


FIELDS = ("cause", "step", "why", "start", "end", "workloads", "nodes", "devices")
"""What the text of one incident has, in this order, before its loss."""


def describe_fields(incident: dict[str, Any]) -> list[str]:
    """Return an incident of `describe_incident` as lines."""
    lost = format_lost(incident["lost_gpu_hours"], incident["most_lost_gpu_hours"])
    usd = incident["usd"]
    money = "dollars unknown" if usd is None else f"${usd:,.2f} with the recovery"
    return [
        *(f"{name}: {_format_field(incident[name])}" for name in FIELDS),
        f"lost: {lost}, {money}",
    ]


def _format_field(value: object) -> str:
    match value:
        case list() | tuple():
            return ", ".join(map(str, value)) or "none"
        case datetime():
            return f"{value:%Y-%m-%d %H:%M} UTC"
        case _:
            return str(value)


def describe_incident(incident: Incident, cost: IncidentCost) -> dict[str, Any]:
    """Return an incident as an object of the document, with its ranked causes and evidence."""
    verdict = incident.verdict
    return {
        **build_incident_row(incident, cost),
        "workloads": _list_workloads(incident),
        "nodes": incident.nodes,
        "end": _set_zone(incident.end),
        "known_at": _set_zone(incident.known_at),
        "class": verdict.class_,
        "remedy": verdict.remedy,
        "causes": verdict.causes,
        "devices": incident.devices,
        "owner_commands": list_owner_commands(incident),
        "evidence": _describe_evidence(incident),
    }


def list_owner_commands(incident: Incident) -> list[str]:
    """Return the commands by which owners start the objects again that have failed for good.

    Each deletes the failed object, with its pods and their logs, and creates it again: Fallow runs
    none of them.
    """
    if incident.recovery_s is not None:
        return []
    ends = {s.owner: s.at for s in incident.signals if s.name == "controller_gave_up"}
    for signal in incident.signals:
        if signal.name == "controller_restarts" and signal.at >= ends.get(signal.owner, signal.at):
            ends.pop(signal.owner, None)
    return [
        commands[owner[2]].format(namespace=shlex.quote(owner[1]), name=shlex.quote(owner[3]))
        for commands in (read_owner_commands(),)
        for owner in ends
        if owner is not None and owner[2] in commands
    ]


def _list_workloads(incident: Incident) -> list[str]:
    return [f"{kind}/{namespace}/{name}" for _, namespace, kind, name in incident.owners]


def _describe_evidence(incident: Incident) -> list[IncidentSign]:
    """Return the signals of an incident as signs; those `of_cause` name the place of its cause."""
    leading = list_leading_signals(incident.verdict.cause)
    return [
        IncidentSign(
            signal=signal.name,
            at=_set_zone(signal.at),
            known_at=_set_zone(signal.known_at),
            text=signal.text,
            source=signal.source,
            node=signal.node or None,
            device=signal.device or None,
            pod=signal.pod or None,
            of_cause=signal.name in leading,
        )
        for signal in incident.signals
    ]


def _set_zone(at: datetime) -> datetime:
    """Return a naive UTC time with its zone."""
    return at.replace(tzinfo=UTC)
