"""The journal's rows as a noun of the warehouse, so that reports and dashboards read them.

The copy also vouches for the journal: rows cut off at its end are missing only here.
"""

from typing import TYPE_CHECKING

from actions.journal.book import Entry, Journal, canonical
from fallow.seams import Views
from fallow.tables import Batch

if TYPE_CHECKING:
    from warehouse.lake import Warehouse

AT_ONCE = 10_000


def copy(journal: Journal, warehouse: "Warehouse", cluster: str) -> int:
    """Store the rows that the warehouse does not have yet; return how many."""
    rows = journal.entries(after=_last(warehouse, cluster))
    for begin in range(0, len(rows), AT_ONCE):
        warehouse.ingest([_batch(rows[begin : begin + AT_ONCE], cluster)])
    return len(rows)


def known(views: Views, cluster: str) -> list[tuple[int, str]]:
    """Return the numbers and hashes of the rows that were copied: see `Journal.verify`."""
    found = views.query(
        "SELECT seq, hash FROM action WHERE cluster = $c ORDER BY seq", {"c": cluster}
    )
    return [(row["seq"], row["hash"]) for row in found.to_pylist()]


def _last(views: Views, cluster: str) -> int:
    row = views.query("SELECT max(seq) AS last FROM action WHERE cluster = $c", {"c": cluster})
    return int(row.to_pylist()[0]["last"] or 0)


def _batch(rows: list[Entry], cluster: str) -> Batch:
    return Batch.of(
        "action",
        {
            "cluster": [cluster] * len(rows),
            "seq": [row.seq for row in rows],
            "ts": [row.at.replace(tzinfo=None) for row in rows],
            "kind": [row.kind for row in rows],
            "about": [row.key for row in rows],
            "actor": [row.actor for row in rows],
            "document": [canonical(row.document) for row in rows],
            "hash": [row.hash for row in rows],
        },
    )
