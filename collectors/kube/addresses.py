"""Map IP addresses to rows of the `address` table: the node of each exporter address."""

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any

from collectors.kube.shapes import Node, Pod
from collectors.series import is_exporter
from fallow.addresses import is_ip


def list_node_addresses(node: Node) -> Iterator[tuple[str, str]]:
    """Yield a node's own addresses with its name."""
    for entry in node.status.addresses or ():
        yield entry.address, node.metadata.name


def list_pod_addresses(pod: Pod) -> Iterator[tuple[str, str]]:
    """Yield the address of an exporter's pod with its node; other pods yield nothing."""
    if is_exporter(pod.metadata.name) and pod.status.pod_ip and pod.spec.node_name:
        yield pod.status.pod_ip, pod.spec.node_name


def address_rows(
    pairs: Iterable[tuple[str, str]], *, cluster: str, now: datetime
) -> Iterator[dict[str, Any]]:
    """Yield one row of `address` per IP address; host names yield none."""
    for address, node in sorted(dict(pairs).items()):
        if node and is_ip(address):
            yield {"cluster": cluster, "address": address, "node": node, "last_seen": now}
