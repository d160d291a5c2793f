"""Read the GPUs of the nodes of incidents, and what ends the reason of a stop."""

from collections.abc import Collection, Mapping
from datetime import datetime
from functools import cache

from fallow.protocols import Views
from fallow.resources import read_table, read_text
from fallow.rows import Row, decode_rows


class NodeGpu(Row, frozen=True):
    """A device, its GPU, its last node, and when telemetry showed it (`node_gpus.sql`)."""

    device: str
    gpu: str
    node: str
    first_seen: datetime
    last_seen: datetime


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
