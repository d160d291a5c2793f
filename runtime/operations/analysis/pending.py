"""Answer `fallow queue` and `fallow why-pending`: who waits for GPUs, why, and the ways in."""

from datetime import datetime
from typing import TYPE_CHECKING, Any

from actions.gate_answers import find_subject, format_names, format_subject
from analyzers.checkpoints import read_last_checkpoints
from analyzers.fragmentation.moves_way import MovesWay
from capacity.placement.fleet_state import WorkloadKey
from capacity.placement.pending_places import PendingAnswer
from capacity.queue.reading import QueueReader
from capacity.queue.records import QueueBlocker, QueuedWorkload, WayIn
from fallow.errors import UsageError
from fallow.models import Subject
from fallow.protocols import Views
from fallow.settings import Settings
from runtime.operations.accounting import windows
from warehouse import coverage

if TYPE_CHECKING:
    from warehouse.lake import Warehouse

NOTE = (
    "a place fits if all waiting pods can be placed there at once: devices that are known to be "
    "free, CPU, memory, labels, taints, GPU model and quota; volumes and images are not checked, "
    "and for pods with a rule about other pods the answer is unknown"
)
COST_NOTE = (
    "waiting_cost = GPU-hours of waiting x usd_h, the mean price of a GPU-hour of the nodes that "
    "take the workload; it is not part of the bill"
)
NOTES = (COST_NOTE, NOTE)


def read_queue(
    warehouse: "Warehouse", *, at: datetime, cluster: str | None
) -> tuple[list[QueuedWorkload], datetime]:
    """Return who waits for GPUs, and for which time: the end of the data at most."""
    last = _find_time(warehouse, at, cluster)
    return build_reader(warehouse, last, warehouse.settings).read(cluster), last


def build_reader(
    views: Views, at: datetime, settings: Settings, *, most_seconds: float | None = None
) -> QueueReader:
    """Return the reader of the queue at one time, with moves and checkpoints.

    `most_seconds`: how long moves are planned in all.
    """
    return QueueReader(
        views,
        at,
        MovesWay(views, at, settings.fragmentation, most_seconds=most_seconds),
        read_last_checkpoints(views, at, settings.reliability.burst_bps),
    )


def explain_why_pending(
    warehouse: "Warehouse", workload: str, *, at: datetime, cluster: str | None
) -> tuple[QueuedWorkload, datetime]:
    """Return the record of a waiting workload, and for which time: the end of the data at most.

    `cluster` narrows where the workload waits; the places are those of every cluster.

    Raises:
        UsageError: no workload, or several that wait, have this name.
    """
    last = _find_time(warehouse, at, cluster)
    reader = build_reader(warehouse, last, warehouse.settings)
    waiting = reader.list_waiting()
    others = {record.key: record for record in reader.list_others()}
    keys = [key for key in {**others, **waiting} if cluster is None or key[0] == cluster]
    if not keys:
        raise UsageError(
            "no workload waits for GPUs",
            hint="fallow why-not WORKLOAD says why one that runs is not acted upon",
        )
    subjects = {Subject(*key): key for key in keys}
    names = format_names(sorted(set(map(format_subject, subjects))))
    hint = f"`fallow queue` lists those that wait: {names}"
    key = subjects[find_subject(workload, subjects, verb="waits for GPUs", hint=hint)]
    return (reader.describe(key, waiting[key]) if key in waiting else others[key]), last


def describe_pending(record: QueuedWorkload, at: datetime) -> dict[str, Any]:
    """Return the document of one waiting workload without its places."""
    answer = record.answer
    return {
        **describe_record(record),
        "at": at.isoformat(),
        "pending_since": record.since.isoformat(),
        "answer": answer.answer if answer else "unknown",
        "why": answer.why if answer else record.reasons[0].text,
        "notes": list(NOTES),
    }


def describe_record(record: QueuedWorkload) -> dict[str, Any]:
    """Return a waiting workload as an object of the document."""
    return {
        "workload": format_key(record.key),
        "cluster": record.key[0],
        "team": record.team,
        "queue": record.queue,
        "priority_class": record.priority_class,
        "priority": record.priority,
        "pods": record.pods,
        "objects": list(record.objects),
        "gpus": record.gpus,
        "since": record.since.isoformat(),
        "hours": record.hours,
        "gpu_hours": record.gpu_hours,
        "usd_h": record.usd_h,
        "waiting_cost": record.waiting_cost,
        "in_bill": False,
        "reasons": [
            {
                "reason": reason.reason,
                "text": reason.text,
                "source": reason.source,
                "at": reason.at.isoformat() if reason.at else None,
            }
            for reason in record.reasons
        ],
        "blocked_by": [_describe_blocker(blocker) for blocker in record.blocked_by],
        "held_by_others": record.held_by_others,
        "ways": [_describe_way(way) for way in record.ways],
        "unknown": list(record.unknown),
    }


def describe_queued(record: QueuedWorkload) -> dict[str, Any]:
    """Return a workload among all that wait: with whether it gets in beside those before it."""
    return {**describe_record(record), "at_once": record.at_once}


def build_queue_row(record: QueuedWorkload) -> dict[str, Any]:
    """Return a waiting workload as one row of a table."""
    return {
        "workload": format_key(record.key),
        "gpus": record.gpus,
        "hours": record.hours,
        "gpu_hours": record.gpu_hours,
        "waiting_cost": record.waiting_cost,
        "why": record.reasons[0].words,
        "blocked_by": ", ".join(format_key(b.key) for b in record.blocked_by),
        "way_in": record.describe_way(),
        "at_once": record.at_once,
        "says": record.reasons[0].text,
        "team": record.team,
        "queue": record.queue,
        "cluster": record.key[0],
    }


def build_place_rows(answer: PendingAnswer | None) -> list[dict[str, Any]]:
    """Return a row per place; pool and zone are null for the whole cluster."""
    return [
        {
            "cluster": place.cluster,
            "pool": place.pool,
            "zone": place.zone,
            "state": place.state,
            "free": place.free,
            "room": place.room,
            "why": place.why,
            "nodes": list(place.nodes),
        }
        for place in (answer.places if answer else ())
    ]


def format_key(key: WorkloadKey) -> str:
    """Return a workload's name as commands take it."""
    return "/".join((key[2], key[1], key[3]))


def _describe_blocker(blocker: QueueBlocker) -> dict[str, Any]:
    return {
        "workload": format_key(blocker.key),
        "gpus": blocker.gpus,
        "holds": list(blocker.holds),
        "why": blocker.why,
        "idle_gpu_hours": blocker.idle_gpu_hours,
    }


def _describe_way(way: WayIn) -> dict[str, Any]:
    return {
        "way": way.kind,
        "state": way.state,
        "why": way.why,
        "cluster": way.cluster or None,
        "nodes": list(way.nodes),
        "workloads": [format_key(key) for key in way.workloads],
        "lenders": list(way.lenders),
        "gpus": way.gpus,
        "moves": list(way.moves),
        "lost_gpu_hours": way.lost.gpu_hours if way.state == "holds" else None,
        "lost_why": way.lost.why,
        "lost_estimated": way.lost.estimated,
        "parts": [_describe_way(part) for part in way.parts],
    }


def _find_time(warehouse: "Warehouse", at: datetime, cluster: str | None) -> datetime:
    """Return the end of the telemetry or of the inventory: an exporter may be away for a while."""
    extents = (
        coverage.find_extent(warehouse, cluster),
        windows.find_inventory_extent(warehouse, cluster),
    )
    ends = [extent.end for extent in extents if extent is not None]
    if not ends and cluster is not None:
        windows.require_extent(warehouse, cluster)
    return min(at, max(ends, default=at))
