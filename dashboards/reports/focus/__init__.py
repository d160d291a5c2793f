"""Export FOCUS: the ledger as charges of the FinOps Open Cost and Usage Specification, 1.2 or 1.0.

The dollars are the ledger's, to the cent; idle and unallocated time are rows of their own.
`columns.csv` has the columns; `charges.sql` shows the source of each.
"""

from decimal import Decimal
from functools import cache

import msgspec
import pyarrow as pa
from pyarrow import csv as arrow_csv
from pyarrow import parquet

from dashboards.figures.query import Filters
from dashboards.figures.spend import read_totals
from dashboards.reports.amounts import format_hours, format_usd
from fallow.csv_cells import guard_cell
from fallow.protocols import Views
from fallow.resources import read_table
from fallow.window import Window
from warehouse.ledger import align_window
from warehouse.pricing import NODE_SHARES
from warehouse.spend import write_estimate_notes
from warehouse.steps import compose_query

VERSIONS = ("1.2", "1.0")
FORM = "%Y-%m-%dT%H:%M:%SZ"


class Charges(msgspec.Struct, frozen=True):
    """A FOCUS file's rows, and a few lines about them."""

    rows: pa.Table
    summary: str


def read_rows(views: Views, window: Window, filters: Filters, version: str) -> Charges:
    """Return a row per day, node, state and holder under the specification's names.

    Dollars sum to the ledger's; GPU-hours without a price are no charge and are counted in the
    summary. Costs are decimal(28, 8), timestamps text in UTC, tags JSON.
    """
    parameters = {
        **align_window(window).bounds(),
        "cluster": filters.cluster,
        "team": filters.team,
        "form": FORM,
        "region": "",
    }
    steps = (*NODE_SHARES, "restatement/restated", "dashboards.reports.focus:charges")
    ledger_rows = views.query(compose_query(steps), parameters)
    charges = pa.table(
        {name: ledger_rows[source] for name, source in list_columns(version).items()}
    )
    spend_totals = read_totals(views, window, filters)
    cost = sum((c for c in charges["EffectiveCost"].to_pylist() if c is not None), Decimal())
    summary_lines = [
        f"{charges.num_rows:,} charges of {format_usd(cost)} ({cost:,.2f} USD), FOCUS {version}"
    ]
    if spend_totals.unpriced_gpu_hours:
        summary_lines.append(
            f"{format_hours(spend_totals.unpriced_gpu_hours)} have no price and are no charge."
        )
    summary_lines += write_estimate_notes(
        spend_totals.estimated_gpu_hours, spend_totals.estimated_usd
    )
    return Charges(charges, "\n".join(summary_lines))


@cache
def list_columns(version: str) -> dict[str, str]:
    """Return the columns of a version in their order, and of which column each is a copy.

    In 1.0 a copy has the name that focus-validator 1.0.0 requires for a column.
    """
    column_rows = read_table("dashboards.reports.focus", "columns.csv")
    return {
        row["column"]: row["same_as"] or row["column"]
        for row in column_rows
        if version in row["versions"].split()
    }


def encode_csv(table: pa.Table) -> bytes:
    """Return the rows as CSV: a null is an empty cell, numbers are plain, formulas are guarded."""
    out = pa.BufferOutputStream()
    guarded = pa.table({name: _guard(table[name]) for name in table.column_names})
    arrow_csv.write_csv(guarded, out, arrow_csv.WriteOptions(quoting_style="needed"))
    return bytes(out.getvalue())


def _guard(column: pa.ChunkedArray) -> pa.ChunkedArray | pa.Array:
    """Return a column of texts with formulas guarded, and any other column as it is."""
    if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
        return column
    coded = column.combine_chunks().dictionary_encode()
    texts = pa.array(map(guard_cell, coded.dictionary.to_pylist()), pa.string())
    return texts.take(coded.indices)


def encode_parquet(table: pa.Table) -> bytes:
    """Return the rows as Parquet, costs as decimals."""
    out = pa.BufferOutputStream()
    parquet.write_table(table, out, compression="zstd")
    return bytes(out.getvalue())
