"""What was paid and wasted, by owner and by state."""

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa

from dashboards import charts, data, filters, links, page
from dashboards.figures import spend, waste
from dashboards.page import PageRequest, format_hours, format_money, format_share
from fallow.models import CLUSTER_SCOPED

COLUMNS = page.read_columns("spend_waste/columns")

IN_CSV = ("waste_pct", "busy_pct", "effective_pct")
DOLLARS = ("waste_usd", *(f"{state}_usd" for state in waste.STATES), "unknown_usd")


def show(request: PageRequest) -> None:
    """Draw the tab."""
    page.show_card(show_owners, request)


def show_owners(request: PageRequest) -> None:
    """Draw and list the waste by owner."""
    key = page.choose_by(waste.KEYS)
    rows = data.query(waste.read_statement, request.window, request.filters, key)
    if not rows.num_rows:
        page.show_no_data(request)
        return
    several = key in CLUSTER_SCOPED and filters.has_several_clusters(request)
    records = [
        {**row, "owner": f"{row['name']} ({row['cluster']})" if several else row["name"]}
        for row in rows.to_pylist()
    ]
    idle, free = (_sum(records, name) for name in ("idle_usd", "free_usd"))
    whole, paid = _sum(records, "waste_usd"), _sum(records, "usd")
    lost = sum(row["waste_gpu_hours"] for row in records)
    page.show_metrics(
        ("Wasted", format_money(whole), format_share(whole, paid) + " of the bill"),
        ("Idle and allocated", format_money(idle), format_share(idle, paid) + " of the bill"),
        ("Free, and paid for", format_money(free), format_share(free, paid) + " of the bill"),
        (
            "Wasted GPU-hours",
            format_hours(lost),
            format_share(lost, sum(r["gpu_hours"] for r in records)),
        ),
    )
    owners_with_waste = [row for row in records if row["waste_usd"]]
    if owners_with_waste:
        parts = [
            {"name": row["owner"], "state": state, "usd": row[f"{state}_usd"]}
            for row in owners_with_waste[:15]
            for state in waste.STATES
            if row[f"{state}_usd"]
        ]
        page.chart(
            charts.draw_stacked_bars(
                parts, names=[r["owner"] for r in owners_with_waste], title="USD wasted"
            ),
            f"Dollars wasted by {key}, stacked by state",
        )
    names, clusters = rows["name"].to_pylist(), rows["cluster"].to_pylist()
    now = data.query(spend.read_totals, request.window, request.filters)
    page.show_table(
        rows,
        filters.add_cluster_of_workloads(COLUMNS, request, key),
        table_name=f"Waste by {key}",
        in_csv=IN_CSV,
        open_row=lambda row: links.open_owner(key, names[row], clusters[row]),
        total=sum_owners(rows, now),
    )
    page.note(
        f"{links.OPENS} Working below target is not counted as waste here, and unknown never is. "
        "What was not "
        "allocated is the platform's. A workload's findings say what to do about it: "
        "`fallow explain`."
    )


def sum_owners(rows: pa.Table, now: spend.SpendTotals) -> dict[str, Any]:
    """Return the row of totals of waste by owner."""
    return page.sum_rows(
        rows,
        (*DOLLARS, "waste_gpu_hours"),
        name="total",
        waste_usd_pct=page.compute_percent(now.wasted_usd, now.usd),
        waste_pct=page.compute_percent(now.wasted_gpu_hours, now.gpu_hours),
        busy_pct=page.compute_percent(now.busy, 1),
        effective_pct=page.compute_percent(now.effective, 1),
    )


def _sum(rows: Sequence[Mapping[str, Any]], name: str) -> Decimal | None:
    amounts_known: list[Decimal] = [row[name] for row in rows if row[name] is not None]
    return sum(amounts_known, Decimal()) if amounts_known else None
