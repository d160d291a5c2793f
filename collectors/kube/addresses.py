"""Map addresses to rows of the `address` table: the node of each IP address and host name.

Exporters call a node by its short name, its full name, or an address of it.
"""

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any

from collectors.kube.owners import find_controller
from collectors.kube.resources import sum_requests
from collectors.kube.shapes import Node, Pod
from collectors.series import is_exporter
from fallow.addresses import LOOPBACK_HOSTS, POD, fold_host, is_ip
from fallow.kube.gpu_resources import select_gpus

HOSTNAME = "kubernetes.io/hostname"


def list_node_addresses(node: Node) -> Iterator[tuple[str, str]]:
    """Yield a node's own addresses and host names with its name."""
    name = node.metadata.name
    yield name, name
    if label := (node.metadata.labels or {}).get(HOSTNAME):
        yield label, name
    for entry in node.status.addresses or ():
        yield entry.address, name


def list_pod_addresses(pod: Pod) -> Iterator[tuple[str, str]]:
    """Yield the address and name of a pod that may be an exporter, with its node.

    Exporters are pods of a DaemonSet with a port, and request no GPU; others are known by name.
    """
    name, spec = pod.metadata.name, pod.spec
    if not spec.node_name or not (_is_daemon(pod) or is_exporter(name)):
        return
    yield POD + name, spec.node_name
    if pod.status.pod_ip:
        yield pod.status.pod_ip, spec.node_name


def _is_daemon(pod: Pod) -> bool:
    owner = find_controller(pod.metadata)
    return (
        owner is not None
        and owner.kind == "DaemonSet"
        and any(container.ports for container in pod.spec.containers or ())
        and not pod.spec.resource_claims
        and not select_gpus(sum_requests(pod.spec))
    )


def address_rows(
    pairs: Iterable[tuple[str, str]], *, cluster: str, now: datetime
) -> Iterator[dict[str, Any]]:
    """Yield one row of `address` per address that tells which node it is; the last IP pair holds.

    A host name that several nodes have, and what every machine calls itself, yield none.
    """
    nodes: dict[str, str] = {}
    for name, node in pairs:
        address = fold_host(name)
        if not is_ip(address) and nodes.get(address, node) != node:
            node = ""  # noqa: PLW2901  (nobody's)
        nodes[address] = node
    for address, node in sorted(nodes.items()):
        if address and node and address not in LOOPBACK_HOSTS:
            yield {"cluster": cluster, "address": address, "node": node, "last_seen": now}
