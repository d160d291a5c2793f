"""Name the node where telemetry knows an address or another host name of it."""

import itertools
from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from fallow.addresses import fold_host, is_ip, is_same_host
from fallow.tables import VIA
from warehouse.steps import load_step


class HostName(NamedTuple):
    """A name of a node that no inventory has: the short form of one that it has, or the full."""

    cluster: str
    address: str
    node: str


def resolve_nodes(
    cursor: duckdb.DuckDBPyConnection, rows: pa.Table
) -> tuple[pa.Table, list[HostName]]:
    """Return rows (`cluster`, `node`, ...) with nodes for addresses that the inventory knows.

    A full name is resolved by the short one, and the other way round, where one node alone has it;
    such names are returned too. What the inventory does not know stays: its devices must not be
    attributed to another node.
    """
    place = rows.schema.get_field_index("node")
    coded = rows.column(place).combine_chunks().dictionary_encode()
    names = coded.dictionary.to_pylist()
    alike: list[HostName] = []
    # An address is unique only within its cluster. A batch has the rows of one cluster; otherwise
    # each row names its own.
    for cluster in pc.unique(rows.column("cluster")).to_pylist() if names else ():
        matches = _find_nodes(cursor, cluster, names)
        alike += [HostName(cluster, *pair) for pair in matches.alike.items()]
        if all(name == node for name, node in matches.nodes.items()):
            continue
        resolved = pa.array([matches.nodes.get(name, name) for name in names], pa.string())
        mine = pc.equal(rows.column("cluster"), cluster)
        column = pc.if_else(mine, resolved.take(coded.indices), rows.column(place))
        rows = rows.set_column(place, rows.schema.field(place), column)
    return rows, alike


class _FoundNodes(NamedTuple):
    nodes: dict[str, str]
    alike: dict[str, str]
    """Folded names that are known by their short or full form alone."""


def _find_nodes(
    cursor: duckdb.DuckDBPyConnection, cluster: str, names: Iterable[str]
) -> _FoundNodes:
    """Find the node of each name that one node alone has."""
    folded = {name: fold_host(name.partition(VIA)[0]) for name in names}
    labels = {host: host.partition(".")[0] for host in folded.values() if not is_ip(host)}
    address_nodes = dict(
        cursor.execute(
            load_step("inventory/host_nodes"),
            {"cluster": cluster, "hosts": [*folded.values()], "labels": [*labels.values()]},
        ).fetchall()
    )
    by_label: dict[str, list[str]] = defaultdict(list)
    for address in itertools.filterfalse(is_ip, address_nodes):
        by_label[address.partition(".")[0]].append(address)
    matches = _FoundNodes({}, {})
    for name, host in folded.items():
        if host in address_nodes:
            matches.nodes[name] = _rename(name, address_nodes[host])
        elif host in labels:
            others = by_label[labels[host]]
            # A node with another full name is another host: gpu1.a.example is no gpu1.b.example.
            foreign = {address_nodes[a] for a in others if not is_same_host(a, host)}
            nodes = {address_nodes[a] for a in others} - foreign
            if len(nodes) == 1:
                [matches.alike[host]] = nodes
                matches.nodes[name] = _rename(name, *nodes)
    return matches


def _rename(name: str, node: str) -> str:
    """Return a node's name with the exporter's address that follows the other name."""
    return node + "".join(name.partition(VIA)[1:])
