"""Whether telemetry and inventory mean the same nodes."""

from collections.abc import Iterator
from importlib.resources import files
from typing import TYPE_CHECKING

from collectors.doctor import CheckRow, few

if TYPE_CHECKING:
    from fallow.protocols import Views

DAYS = 7
STEP = (
    "relabel `node` onto the exporter's series, or let kube-state-metrics show pod_ip "
    "(docs/prometheus.md)"
)


def check_nodes(views: "Views") -> Iterator[CheckRow]:
    """Name the nodes of devices that the cluster's inventory does not have: unresolved."""
    text = (
        files("runtime.operations.doctor")
        .joinpath("unresolved_nodes.sql")
        .read_text(encoding="utf-8")
    )
    rows = views.query(text, {"days": DAYS}).to_pylist()
    if not rows:
        return
    named = few([f"{row['node']} ({row['devices']} devices, {row['cluster']})" for row in rows])
    finding = f"no node of the inventory, so these devices' node is unresolved: {named}"
    yield CheckRow("unresolved nodes", "warn", finding, STEP)
