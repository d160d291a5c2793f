"""Name the node where telemetry knows an address or another host name of it."""

import itertools
from collections import defaultdict
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from fallow.addresses import POD, fold_host, is_ip, is_same_host
from fallow.tables import AND, VIA, get_schema
from warehouse.steps import load_step

HOST_PERIOD = timedelta(minutes=1)
"""How long the node of a host name is not read again: each scrape has the same names."""


class HostNames:
    """The nodes of the host names in a warehouse's batches. An IP address is read each time."""

    def __init__(self, clock: Callable[[], datetime]) -> None:
        self._clock, self._since = clock, clock()
        self._nodes: dict[tuple[str, str], str] = {}
        self._learned: dict[tuple[str, str], str] = {}

    def forget(self) -> None:
        """Read all names again: the inventory's addresses have changed."""
        self._nodes.clear()

    def resolve(self, cursor: duckdb.DuckDBPyConnection, rows: pa.Table) -> pa.Table:
        """Return rows (`cluster`, `node`, ...) with nodes for addresses that the inventory knows.

        A full name is resolved by the short one, and the other way round, where one node alone has
        it. What the inventory does not know stays: its devices must not be attributed to another
        node.
        """
        now = self._clock()
        if not timedelta(0) <= now - self._since < HOST_PERIOD:
            self.forget()
            self._since = now
        place = rows.schema.get_field_index("node")
        coded = rows.column(place).combine_chunks().dictionary_encode()
        names = coded.dictionary.to_pylist()
        # An address is unique only within its cluster. A batch has the rows of one cluster;
        # otherwise each row names its own.
        for cluster in pc.unique(rows.column("cluster")).to_pylist() if names else ():
            nodes = self._find(cursor, cluster, names)
            if nodes == names:
                continue
            resolved = pa.array(nodes, pa.string()).take(coded.indices)
            mine = pc.equal(rows.column("cluster"), cluster)
            column = pc.if_else(mine, resolved, rows.column(place))
            rows = rows.set_column(place, rows.schema.field(place), column)
        return rows

    def take_learned(self) -> pa.Table:
        """Return rows of `address`: names that were resolved by their short or full form alone."""
        at = self._clock().astimezone(UTC).replace(tzinfo=None)
        rows = [
            {"cluster": cluster, "address": host, "node": node, "last_seen": at}
            for (cluster, host), node in self._learned.items()
        ]
        self._learned.clear()
        return pa.Table.from_pylist(rows, get_schema("address"))

    def _find(self, cursor: duckdb.DuckDBPyConnection, cluster: str, names: list[str]) -> list[str]:
        """Return the node of each name; of one that no node alone has, the name."""
        hosts = {
            name: [fold_host(part) for part in name.partition(VIA)[0].split(AND)] for name in names
        }
        every_host = {host for parts in hosts.values() for host in parts}
        unread = {host for host in every_host if (cluster, host) not in self._nodes}
        address_nodes = self._read(cursor, cluster, unread) if unread else {}
        self._nodes |= {
            (cluster, host): address_nodes.get(host, "") for host in unread if not is_ip(host)
        }
        resolved = []
        for name, parts in hosts.items():
            nodes = {address_nodes.get(h) or self._nodes.get((cluster, h), "") for h in parts}
            # Of two names of which the inventory knows one, or whose node is one, that is the node.
            node = AND.join(sorted(nodes - {""})) or name.partition(VIA)[0].rpartition(AND)[2]
            resolved.append(node + "".join(name.partition(VIA)[1:]))
        return resolved

    def _read(
        self, cursor: duckdb.DuckDBPyConnection, cluster: str, hosts: Iterable[str]
    ) -> dict[str, str]:
        labels = {host: host.partition(".")[0] for host in hosts if not is_ip(host)}
        named = [*hosts, *(POD + host for host in labels)]
        address_nodes = dict(
            cursor.execute(
                load_step("inventory/host_nodes"),
                {"cluster": cluster, "hosts": named, "labels": [*labels.values()]},
            ).fetchall()
        )
        for host in labels:
            if node := address_nodes.pop(POD + host, None):
                address_nodes.setdefault(host, node)
        by_label: dict[str, list[str]] = defaultdict(list)
        for address in itertools.filterfalse(is_ip, address_nodes):
            by_label[address.partition(".")[0]].append(address)
        alike = {}
        for host in labels.keys() - address_nodes.keys():
            others = by_label[labels[host]]
            # A node with another full name is another host: gpu1.a.example is no gpu1.b.example.
            foreign = {address_nodes[a] for a in others if not is_same_host(a, host)}
            nodes = {address_nodes[a] for a in others} - foreign
            if len(nodes) == 1:
                [alike[host]] = nodes
        self._learned |= {(cluster, host): node for host, node in alike.items()}
        return address_nodes | alike
