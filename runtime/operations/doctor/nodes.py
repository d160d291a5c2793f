"""Check whether telemetry and inventory use the same node names."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from collectors.doctor import CheckRow, format_few
from fallow.resources import read_text

if TYPE_CHECKING:
    from fallow.protocols import Views

DAYS = 7
STEP = (
    "relabel `node` onto the exporter's series, or let kube-state-metrics show pod_ip "
    "(docs/prometheus.md)"
)


def check_nodes(views: "Views") -> Iterator[CheckRow]:
    """Name the nodes of devices that the cluster's inventory does not have: they are unresolved."""
    text = read_text("runtime.operations.doctor", "unresolved_nodes.sql")
    others = views.query(read_text("runtime.operations.doctor", "other_names.sql")).to_pylist()
    if others:
        named = format_few([f"{row['address']} is {row['node']}" for row in others])
        yield CheckRow("names of nodes", "ok", f"other names of one node: {named}")
    rows = views.query(text, {"days": DAYS}).to_pylist()
    if not rows:
        return
    named = format_few(
        [f"{row['node']} ({row['devices']} devices, {row['cluster']})" for row in rows]
    )
    finding = f"no node of the inventory, so these devices' node is unresolved: {named}"
    yield CheckRow("unresolved nodes", "warn", finding, STEP)
