"""Show health: GPUs that fail, throttle or are slow, and nodes that were not available."""

import msgspec
import pyarrow as pa

from dashboards.figures.analyzer_findings import list_findings
from dashboards.figures.incidents import decode_incident
from dashboards.figures.query import BY_DAY, BY_DEVICE, Filters, run_query
from fallow.protocols import Views
from fallow.window import Window
from fallow.xids import get_xid_meaning

MOST = 300
DEVICES = (*BY_DEVICE, "health/devices")
INCIDENTS = ("health/stored_incidents",)
SLOW = 0.9
"""Share of the median clock of its model while busy: a device below it is listed."""
SICK = frozenset({"sick_node", "suspect_gpu"})
"""Kinds of findings about a node that is sick."""
RECYCLE = "recycle the node"
"""The step of incidents whose cause stays on the node."""
LEAST_PEERS = 4
"""A median of fewer devices is not used."""


class SickNode(msgspec.Struct, frozen=True):
    """A node to drain, repair or replace."""

    cluster: str
    node: str


def read_away(views: Views, window: Window, filters: Filters) -> pa.Table:
    """Return unavailable and lost time per node; sums equal those of `fallow spend --by state`.

    Columns: cluster, pool, node, unavailable_gpu_hours, unavailable_usd, lost_gpu_hours, lost_usd,
    gpu_hours.
    """
    return run_query(views, (*BY_DAY, "health/away"), window, filters)


def read_xids(views: Views, window: Window, filters: Filters) -> pa.Table:
    """Return the XIDs that devices showed, the newest first.

    Columns: cluster, node, device, model, xid, first_hour, last_hour (UTC), hours (in which it was
    shown), pod (that held the device in the first one); severity, meaning (empty = not listed) and
    action from NVIDIA's catalogue.
    """
    rows = run_query(
        views, (*BY_DEVICE, "health/devices", "health/xids"), window, filters, most=MOST
    )
    meanings = [get_xid_meaning(code) for code in rows["xid"].to_pylist()]
    for name in ("severity", "meaning", "action"):
        rows = rows.append_column(name, pa.array([getattr(s, name) for s in meanings], pa.string()))
    return rows


def read_clocks(views: Views, window: Window, filters: Filters) -> pa.Table:
    """Return the devices that throttled or were slower than their model's others, the worst first.

    Columns: cluster, node, device, model, busy_hours, clock_mhz (mean while busy), peers_mhz,
    peers (devices of the model), slower_pct, hot_hours, hot_pct (of its busy hours), reasons,
    temp_c (highest). A workload may cause lower clocks by its kind of computation: the analyzer
    compares within one workload, this figure does not.
    """
    steps = (*DEVICES, "health/clocks")
    return run_query(views, steps, window, filters, most=MOST, slow=SLOW, least_peers=LEAST_PEERS)


def read_failures(views: Views, window: Window, filters: Filters) -> pa.Table:
    """Return the failures that lost work: day (UTC), cause, pods, gpu_hours.

    cause: spot, preemption, node, device, application or unknown. Team, model and pool do not
    filter it.
    """
    return run_query(views, ("health/failures",), window, filters)


def read_incidents(views: Views, window: Window, filters: Filters) -> pa.Table:
    """Return the stored incidents, the newest first; team, model and pool do not filter them.

    Columns: id, start, end (UTC), cluster, cause, class, step, why, workloads, nodes, devices,
    evidence (these four JSON), gpus, lost_gpu_hours, most_lost_gpu_hours (its bound),
    recovery_gpu_hours, usd (null = not known).
    """
    return run_query(views, (*INCIDENTS, "health/incidents"), window, filters, most=MOST)


def list_sick_nodes(views: Views, window: Window, filters: Filters) -> tuple[SickNode, ...]:
    """Return the nodes that a finding calls sick, or an incident of the window says to recycle.

    Of an incident it is the node of its cause, not each node of its workloads.
    """
    listed = list_findings(views, window, filters, "reliability")
    sick = {(f.cluster, f.workload) for f in listed if f.kind in SICK}
    for row in read_incidents(views, window, filters).to_pylist():
        incident = decode_incident(row)
        if incident.step == RECYCLE:
            nodes = {sign.node for sign in incident.signs if sign.of_cause}
            sick |= {(incident.cluster, node) for node in nodes if node}
    return tuple(SickNode(*place) for place in sorted(sick))


def read_incident_causes(views: Views, window: Window, filters: Filters) -> pa.Table:
    """Return the stored incidents by cause, the most expensive first.

    Columns: cause, incidents, unknown (of which the cost is not known), lost_gpu_hours,
    most_lost_gpu_hours (its bound), recovery_gpu_hours, usd (null = not known).
    """
    return run_query(views, (*INCIDENTS, "health/incident_causes"), window, filters)


def read_events(views: Views, window: Window, filters: Filters) -> pa.Table:
    """Return events of nodes: ts, cluster, node, reason, type, message, count."""
    return run_query(
        views, (*BY_DEVICE, "health/devices", "health/events"), window, filters, most=MOST
    )
