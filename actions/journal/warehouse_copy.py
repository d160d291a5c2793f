"""Copy the journal's rows to a table of the warehouse, for reports and dashboards.

The copy has no values of `env` and no passwords, also of rows that an old version wrote with them.
The copy also helps to verify the journal: only the copy shows that rows at its end were cut off.
"""

from typing import TYPE_CHECKING

from actions.cluster.literal_values import hide_literals
from actions.journal.log import Entry, Journal, encode_canonical
from fallow.protocols import Views
from fallow.tables import Batch

if TYPE_CHECKING:
    from warehouse.lake import Warehouse

BATCH_ROWS = 10_000


def copy_journal(journal: Journal, warehouse: "Warehouse", cluster: str) -> int:
    """Store the rows that the warehouse does not have yet; return how many."""
    rows = journal.entries(after=_find_last(warehouse, cluster))
    for begin in range(0, len(rows), BATCH_ROWS):
        warehouse.ingest([_batch(rows[begin : begin + BATCH_ROWS], cluster)])
    return len(rows)


def read_copied_hashes(views: Views, cluster: str) -> list[tuple[int, str]]:
    """Return the numbers and hashes of the rows that were copied: see `Journal.verify`."""
    rows = views.query(
        "SELECT seq, hash FROM action WHERE cluster = $c ORDER BY seq", {"c": cluster}
    )
    return [(row["seq"], row["hash"]) for row in rows.to_pylist()]


def _find_last(views: Views, cluster: str) -> int:
    row = views.query("SELECT max(seq) AS last FROM action WHERE cluster = $c", {"c": cluster})
    return int(row.to_pylist()[0]["last"] or 0)


def _batch(entries: list[Entry], cluster: str) -> Batch:
    return Batch.of(
        "action",
        {
            "cluster": [cluster] * len(entries),
            "seq": [row.seq for row in entries],
            "ts": [row.at.replace(tzinfo=None) for row in entries],
            "kind": [row.kind for row in entries],
            "about": [row.key for row in entries],
            "actor": [row.actor for row in entries],
            "document": [encode_canonical(hide_literals(row.document)) for row in entries],
            "hash": [row.hash for row in entries],
        },
    )
