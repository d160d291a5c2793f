"""Read what stored incidents say of suspended jobs, and the GPUs of their nodes."""

from collections.abc import Collection, Mapping
from datetime import datetime
from functools import cache

from fallow.protocols import Views
from fallow.resources import read_table, read_text
from fallow.rows import Row, decode_rows
from warehouse.incidents import list_cause_places


class IncidentStep(Row, frozen=True):
    """What a stored incident says of a job (`incident_steps.sql`)."""

    id: str
    cause: str
    step: str
    end: datetime
    evidence: str | None

    @property
    def nodes(self) -> tuple[str, ...]:
        """Return the nodes that signals of the cause name."""
        return list_cause_places(self.evidence, "node")

    @property
    def devices(self) -> tuple[str, ...]:
        """Return the devices that signals of the cause name."""
        return list_cause_places(self.evidence, "device")


class NodeGpu(Row, frozen=True):
    """A device, its GPU, its last node, and when telemetry showed it (`node_gpus.sql`)."""

    device: str
    gpu: str
    node: str
    first_seen: datetime
    last_seen: datetime


def read_incident_steps(
    views: Views, cluster: str, workload: str, since: datetime, until: datetime
) -> list[IncidentStep]:
    """Return the incidents of a job (namespace/kind/name) with a sign in a time, newest first."""
    sql = read_text("analyzers.suspended", "incident_steps.sql")
    parameters = {"cluster": cluster, "workload": workload, "since": since, "until": until}
    return decode_rows(views.query(sql, parameters), IncidentStep)


def read_node_gpus(
    views: Views, cluster: str, nodes: Collection[str], devices: Collection[str], until: datetime
) -> list[NodeGpu]:
    """Return the devices of some nodes, and some devices wherever they are."""
    sql = read_text("analyzers.suspended", "node_gpus.sql")
    parameters = {
        "cluster": cluster, "nodes": sorted(nodes), "devices": sorted(devices), "until": until
    }  # fmt: skip
    return decode_rows(views.query(sql, parameters), NodeGpu)


@cache
def read_ends() -> Mapping[str, str]:
    """Return what ends the reason of a stop, by the step of its incident (`ends.csv`)."""
    rows = read_table("analyzers.suspended", "ends.csv")
    return {each["step"]: each["ends"] for each in rows}
