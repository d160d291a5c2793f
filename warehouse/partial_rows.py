"""Complete rows of a source that shows only some labels or annotations by what is known."""

import duckdb
import pyarrow as pa

from fallow.partial_documents import complete, is_partial, list_visible
from warehouse.statements import read_rows
from warehouse.steps import load_step

_DOCUMENTS = {"pod": ("uid", ("labels", "annotations")), "node": ("node", ("labels",))}
"""Documents by table, and the column with the object's id."""


def complete_rows(cursor: duckdb.DuckDBPyConnection, table: str, rows: pa.Table) -> pa.Table:
    """Return incoming rows without partial documents, before they are stored."""
    key, columns = _DOCUMENTS.get(table, ("", ()))
    for column in columns:
        texts = rows[column].to_pylist()
        places = [place for place, text in enumerate(texts) if is_partial(text)]
        if not places:
            continue
        stored = _read_documents(cursor, f"{table}.{column}", key, rows, places)
        clusters = rows["cluster"].to_pylist()
        visible = {
            cluster: list_visible(texts[place] for place in places if clusters[place] == cluster)
            for cluster in {clusters[place] for place in places}
        }
        for place in places:
            texts[place] = complete(texts[place], stored.get(place), visible[clusters[place]])
        at = rows.schema.get_field_index(column)
        rows = rows.set_column(at, rows.schema.field(at), pa.array(texts, pa.string()))
    return rows


def _read_documents(
    cursor: duckdb.DuckDBPyConnection, kind: str, key: str, rows: pa.Table, places: list[int]
) -> dict[int, str | None]:
    named = rows.select(["cluster", key, "last_seen"]).rename_columns(
        ["cluster", "id", "last_seen"]
    )
    incoming = named.append_column("place", pa.array(range(rows.num_rows))).take(places)
    cursor.register("incoming", incoming)
    documents = read_rows(cursor, load_step("inventory/known_documents"), {"kind": kind})
    cursor.unregister("incoming")
    return dict(zip(*(documents[name].to_pylist() for name in ("place", "document")), strict=True))
