"""What was paid and wasted, by owner and by state."""

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

from dashboards import charts, data, filters, links, page
from dashboards.figures import waste
from dashboards.page import PageRequest, format_hours, format_money, format_share
from fallow.models import CLUSTER_SCOPED

COLUMNS = {
    "name": page.name("name"),
    "waste_usd": page.configure_usd("wasted, USD"),
    "waste_usd_pct": page.configure_percent("of its dollars"),
    "waste_gpu_hours": page.configure_number("wasted GPU-hours"),
    "waste_pct": page.configure_percent("of its GPU-hours"),
    "idle_usd": page.configure_usd("idle", "allocated, and not used"),
    "lost_usd": page.configure_usd("lost", "work thrown away"),
    "free_usd": page.configure_usd("free", "not allocated"),
    "stranded_usd": page.configure_usd("stranded", "free, but nothing fits"),
    "unavailable_usd": page.configure_usd("unavailable", "broken or cordoned"),
    "busy_pct": page.BUSY,
    "effective_pct": page.EFFECTIVE,
    "unknown_usd": page.configure_usd("unknown", "never counted as waste"),
}


def show(request: PageRequest) -> None:
    """Draw the tab."""
    page.show_card(show_owners, request)


def show_owners(request: PageRequest) -> None:
    """Draw and list the waste by owner."""
    key = page.choose_by(waste.KEYS)
    rows = data.query(waste.read_by_owner, request.window, request.filters, key)
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
    page.show_table(
        rows,
        filters.add_cluster_of_workloads(COLUMNS, request, key),
        table_name=f"Waste by {key}",
        open_row=lambda row: links.open_owner(key, names[row], clusters[row]),
    )
    page.note(
        f"{links.OPENS} Working below target is not counted as waste here, and unknown never is. "
        "What was not "
        "allocated is the platform's. A workload's findings say what to do about it: "
        "`fallow explain`."
    )


def _sum(rows: Sequence[Mapping[str, Any]], name: str) -> Decimal | None:
    amounts_known: list[Decimal] = [row[name] for row in rows if row[name] is not None]
    return sum(amounts_known, Decimal()) if amounts_known else None
