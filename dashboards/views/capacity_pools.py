"""Node pools: what they cost, how full they are, and the least that would hold their work."""

from typing import Any

from dashboards import charts, data, links, page
from dashboards.figures import supply
from dashboards.page import PageRequest, format_money, format_share

POOLS = page.read_columns("capacity_pools/pools")
ADVICE = page.read_columns("capacity_pools/advice")


def show(request: PageRequest) -> None:
    """Draw the tab."""
    page.show_card(show_pools, request)
    page.show_card(show_advised, request)


def show_pools(request: PageRequest) -> None:
    """Draw and list the pools."""
    rows = data.query(supply.read_pools, request.window, request.filters).to_pylist()
    if not rows:
        page.show_no_data(request)
        return
    hours = sum(row["gpu_hours"] for row in rows)
    free = sum(row["gpu_hours"] * row["free_pct"] / 100 for row in rows)
    idle = sum(row["gpu_hours"] * row["idle_pct"] / 100 for row in rows)
    rate = [row["usd_h"] for row in rows if row["usd_h"] is not None]
    sized = [r for r in rows if r["bound_usd_h"] is not None and r["today_usd_h"] is not None]
    above = sum(r["today_usd_h"] - r["bound_usd_h"] for r in sized) if sized else None
    help_text = (
        f"per hour, of {len(sized)} pools that were sized" if sized else "no pool was sized yet"
    )
    page.show_metrics(
        ("Pools", f"{len(rows):,}", f"{format_money(sum(rate) if rate else None)} per hour"),
        ("Free, and paid for", format_share(free, hours), "of GPU-hours"),
        ("Allocated, idle", format_share(idle, hours), "of GPU-hours"),
        ("Above the lower bound", format_money(above) if sized else "unknown", help_text),
    )
    bars = data.query(supply.read_states, request.window, request.filters).to_pylist()
    if bars:
        page.chart(
            charts.draw_stacked_bars(bars, names=[row["pool"] for row in rows], title="USD"),
            "Dollars of each pool, stacked by what its GPUs did",
        )
    page.show_table(rows, POOLS, table_name="Node pools, the most expensive first")
    if not sized:
        page.note(
            "A lower bound comes with the analyzer's findings `oversized_pool` and "
            "`misshapen_pool`: where there are none, no mix was found that holds the peak for less."
        )


def show_advised(request: PageRequest) -> None:
    """List the advice of the pool analyzer."""
    page.show_heading("What to do about them")
    rows = data.query(supply.read_advised, request.window, request.filters, supply.POOLS)
    if not rows:
        page.show_no_findings(
            request,
            supply.POOLS,
            "Nothing is advised about pools here.",
            "`fallow analyze pools` judges them again.",
        )
        return
    page.show_table([_add_link(row) for row in rows], ADVICE, table_name="Advice about node pools")


def _add_link(row: dict[str, Any]) -> dict[str, Any]:
    cells = {name: value for name, value in row.items() if name != "details"}
    return {**cells, **links.build_finding_link(row["id"])}
