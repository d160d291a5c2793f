"""Name the node where telemetry knows only the address at which its exporter was scraped."""

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from fallow.addresses import is_ip

_LIKE_ADDRESS = "^[0-9.]+$|:"
"""What every address matches, and few names of nodes: a fleet has thousands in each scrape."""


def resolve_nodes(cursor: duckdb.DuckDBPyConnection, rows: pa.Table) -> pa.Table:
    """Return rows (`cluster`, `node`, ...) with nodes for addresses that the inventory knows.

    An address that the inventory does not know stays unresolved: its devices must not be
    attributed to another node.
    """
    place = rows.schema.get_field_index("node")
    coded = rows.column(place).combine_chunks().dictionary_encode()
    alike = coded.dictionary.filter(pc.match_substring_regex(coded.dictionary, _LIKE_ADDRESS))
    addresses = [name for name in alike.to_pylist() if is_ip(name)]
    if not addresses:
        return rows
    # An address is unique only within its cluster. A batch has the rows of one cluster; otherwise
    # each row names its own.
    for cluster in pc.unique(rows.column("cluster")).to_pylist():
        node_of = dict(
            cursor.execute(
                "SELECT address, node FROM address"
                " WHERE cluster = $cluster AND list_contains($addresses, address)",
                {"cluster": cluster, "addresses": addresses},
            ).fetchall()
        )
        if not node_of:
            continue
        names = pa.array([node_of.get(n, n) for n in coded.dictionary.to_pylist()], pa.string())
        mine = pc.equal(rows.column("cluster"), cluster)
        nodes = pc.if_else(mine, names.take(coded.indices), rows.column(place))
        rows = rows.set_column(place, rows.schema.field(place), nodes)
    return rows
