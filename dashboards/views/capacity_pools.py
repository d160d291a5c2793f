"""Node pools: what they cost, how full they are, and the least that would hold their work."""

from typing import Any

from dashboards import action_buttons, charts, data, links, page
from dashboards.figures import supply
from dashboards.page import PageRequest, money, share

FINDING = "finding_link"
POOLS = {
    "pool": page.name("pool"),
    "usd_h": page.usd("USD per hour", "mean of the window"),
    "gpus": page.number("GPUs"),
    "nodes": page.number("nodes"),
    "productive_pct": page.percent("productive"),
    "idle_pct": page.percent("allocated, idle"),
    "free_pct": page.percent("free"),
    "today_usd_h": page.usd("sized: today", "USD per hour when the analyzer sized it"),
    "packed_usd_h": page.usd("packed", "a mix of types that holds the peak"),
    "bound_usd_h": page.usd("lower bound", "no mix of the types on offer holds it for less"),
    "today_nodes": page.number("nodes today"),
    "packed_nodes": page.number("nodes packed"),
    "usd": page.usd("USD"),
    "cluster": page.name("cluster", "small"),
}
ADVICE = {
    "workload": page.name("about"),
    "usd": page.usd("would save, USD"),
    "verb": page.name("what to do"),
    "gpu_hours": page.number("GPU-hours"),
    "saving": page.name("saves", "small"),
    "evidence": page.name("evidence", "small"),
    "why": page.name("how", "large"),
    "caution": page.name("caution", "large"),
    FINDING: action_buttons.findings(),
}


def show(request: PageRequest) -> None:
    """Draw the tab."""
    page.card(pools, request)
    page.card(advised, request)


def pools(request: PageRequest) -> None:
    """Draw and list the pools."""
    rows = data.query(supply.pools, request.window, request.filters).to_pylist()
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
    page.metrics(
        ("Pools", f"{len(rows):,}", f"{money(sum(rate) if rate else None)} per hour"),
        ("Free, and paid for", share(free, hours), "of GPU-hours"),
        ("Allocated, idle", share(idle, hours), "of GPU-hours"),
        ("Above the lower bound", money(above) if sized else "unknown", help_text),
    )
    bars = data.query(supply.states, request.window, request.filters).to_pylist()
    if bars:
        page.chart(
            charts.stacked_bars(bars, names=[row["pool"] for row in rows], title="USD"),
            "Dollars of each pool, stacked by what its GPUs did",
        )
    page.table(rows, POOLS, table_name="Node pools, the most expensive first")
    if not sized:
        page.note(
            "A lower bound comes with the analyzer's findings `oversized_pool` and "
            "`misshapen_pool`: where there are none, no mix was found that holds the peak for less."
        )


def advised(request: PageRequest) -> None:
    """List the advice of the pool analyzer."""
    page.heading("What to do about them")
    rows = data.query(supply.advised, request.window, request.filters, supply.POOLS)
    if not rows:
        page.show_no_findings(
            request,
            supply.POOLS,
            "Nothing is advised about pools here.",
            "`fallow analyze pools` judges them again.",
        )
        return
    page.table([_linked(row) for row in rows], ADVICE, table_name="Advice about node pools")


def _linked(row: dict[str, Any]) -> dict[str, Any]:
    cells = {name: value for name, value in row.items() if name != "details"}
    return {**cells, FINDING: links.page_link("findings", finding=row["id"])}
