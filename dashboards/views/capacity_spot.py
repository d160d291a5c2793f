"""How capacity is bought, and which work could run on spot nodes, interruptions paid."""

from typing import Any

from dashboards import charts, data, links, page
from dashboards.figures import supply
from dashboards.page import PageRequest, format_hours, format_money, format_share

CAPACITY = page.read_columns("capacity_spot/capacity")
ADVICE = page.read_columns("capacity_spot/advice")


def show(request: PageRequest) -> None:
    """Draw the tab."""
    page.show_card(show_capacity, request)
    page.show_card(show_advised, request)


def show_capacity(request: PageRequest) -> None:
    """Show the committed, on-demand and spot capacity."""
    rows = data.query(supply.read_capacity, request.window, request.filters).to_pylist()
    if not rows:
        page.show_no_data(request)
        return
    total_hours = sum(row["gpu_hours"] for row in rows)
    spot = next((row for row in rows if row["capacity"] == "spot"), None)
    spot_advice = data.query(supply.read_advised, request.window, request.filters, supply.SPOT)
    saves = [row["usd"] for row in spot_advice if row["usd"] is not None]
    workloads = {(row["cluster"], row["workload"]) for row in spot_advice if row["gpu_hours"]}
    page.show_metrics(
        ("On spot", format_share(spot["gpu_hours"] if spot else 0, total_hours), "of GPU-hours"),
        ("Could run there", f"{len(workloads):,}", "workloads that save"),
        (
            "Would save",
            format_money(sum(saves) if saves else None),
            "in this window, interruptions paid",
        ),
        ("Lost on spot", format_hours((spot or {}).get("lost_gpu_hours") or 0), "work thrown away"),
    )
    page.show_table(rows, CAPACITY, table_name="GPU-hours by how nodes are bought")
    page.note("Committed: what commitments paid of these hours: page Spend, tab Commitments.")


def show_advised(request: PageRequest) -> None:
    """Draw and list the work that could run on spot nodes."""
    page.show_heading("Work that could run there")
    advice_rows = data.query(supply.read_advised, request.window, request.filters, supply.SPOT)
    if not advice_rows:
        page.show_no_findings(
            request,
            supply.SPOT,
            "No work was found that spot nodes would make cheaper.",
            "The analyzer needs prices of spot (`prices`), and work that survives an interruption.",
        )
        return
    rows = [_build_row(row) for row in advice_rows]
    bars = [{"name": r["workload"], "usd": r["usd"]} for r in rows if r["usd"]]
    if bars:
        page.chart(
            charts.draw_ranked_bars(bars, title="USD saved", most=10),
            "Dollars that spot nodes would save, by workload",
        )
    page.show_table(rows, ADVICE, table_name="Work that could run on spot nodes")
    page.note("Savings are net of the time that interruptions cost, at their worst estimate.")


def _build_row(row: dict[str, Any]) -> dict[str, Any]:
    details = row["details"]
    plans = details.get("plans") or [{}]
    first: dict[str, Any] = plans[0] if isinstance(plans[0], dict) else {}
    stretch = (first.get("stretch") or {}).get("pessimistic")
    cells = {name: value for name, value in row.items() if name != "details"}
    return cells | {
        "saved_pct": _compute_percent(first.get("realised_saving")),
        "discount_pct": _compute_percent(first.get("list_discount")),
        "stretch_pct": None if stretch is None else 100 * (stretch - 1),
        "mtbf_hours": (first.get("risk") or {}).get("mtbf_hours"),
        "type": first.get("instance_type"),
        **links.build_finding_link(row["id"]),
    }


def _compute_percent(part: float | None) -> float | None:
    return None if part is None else 100 * part
