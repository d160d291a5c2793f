"""How capacity is bought, and which work could run on spot nodes, interruptions paid."""

from typing import Any

from dashboards import charts, data, doing, links, page
from dashboards.figures import supply
from dashboards.page import Asked, hours, money, share

TITLE, ICON, ORDER = "Spot", ":material/percent:", 100

FINDING = "finding_link"
CAPACITY = {
    "capacity": page.name("bought"),
    "usd": page.usd("USD"),
    "usd_per_gpu_hour": page.usd("per GPU-hour"),
    "gpu_hours": page.number("GPU-hours"),
    "nodes": page.number("nodes"),
    "productive_pct": page.percent("productive"),
    "lost_gpu_hours": page.number("GPU-hours lost", "work that was thrown away"),
}
ADVICE = {
    "workload": page.name("workload", "large"),
    "usd": page.usd("would save, USD"),
    "saved_pct": page.percent("of what it cost"),
    "discount_pct": page.percent("below list"),
    "stretch_pct": page.number("time more, %", "at worst, for interruptions"),
    "mtbf_hours": page.number("hours between interruptions"),
    "verb": page.name("what to do"),
    "evidence": page.name("evidence", "small"),
    "team": page.name("team", "small"),
    "type": page.name("instance type", "small"),
    "caution": page.name("caution", "large"),
    FINDING: doing.findings(),
}


def show(asked: Asked) -> None:
    """Draw the page."""
    page.card(capacity, asked)
    page.card(advised, asked)


def capacity(asked: Asked) -> None:
    """Say what is on demand, on spot, reserved."""
    rows = data.ask(supply.capacity, asked.window, asked.filters).to_pylist()
    if not rows:
        page.nobody(asked)
        return
    whole = sum(row["gpu_hours"] for row in rows)
    spot = next((row for row in rows if row["capacity"] == "spot"), None)
    told = data.ask(supply.advised, asked.window, asked.filters, supply.SPOT)
    saves = [row["usd"] for row in told if row["usd"] is not None]
    page.metrics(
        ("On spot", share(spot["gpu_hours"] if spot else 0, whole), "of GPU-hours"),
        ("Could run there", f"{len(told):,}", "workloads"),
        ("Would save", money(sum(saves) if saves else None), "in this window, interruptions paid"),
        ("Lost on spot", hours((spot or {}).get("lost_gpu_hours") or 0), "work thrown away"),
    )
    page.table(rows, CAPACITY, called="GPU-hours by how nodes are bought")


def advised(asked: Asked) -> None:
    """Draw and list the work that could run on spot nodes."""
    page.heading("Work that could run there")
    found = data.ask(supply.advised, asked.window, asked.filters, supply.SPOT)
    if not found:
        page.none(
            asked,
            supply.SPOT,
            "No work was found that spot nodes would make cheaper.",
            "The analyzer needs prices of spot (`prices`), and work that survives an interruption.",
        )
        return
    rows = [_row(row) for row in found]
    drawn = [{"name": r["workload"], "usd": r["usd"]} for r in rows if r["usd"]]
    if drawn:
        page.chart(
            charts.ranked_bars(drawn, title="USD saved", most=10),
            "Dollars that spot nodes would save, by workload",
        )
    page.table(rows, ADVICE, called="Work that could run on spot nodes")
    page.note("Savings are net of the time that interruptions cost, at their worst estimate.")


def _row(row: dict[str, Any]) -> dict[str, Any]:
    details = row["details"]
    plans = details.get("plans") or [{}]
    first: dict[str, Any] = plans[0] if isinstance(plans[0], dict) else {}
    stretch = (first.get("stretch") or {}).get("pessimistic")
    made = {name: value for name, value in row.items() if name != "details"}
    return made | {
        "saved_pct": _percent(first.get("realised_saving")),
        "discount_pct": _percent(first.get("list_discount")),
        "stretch_pct": None if stretch is None else 100 * (stretch - 1),
        "mtbf_hours": (first.get("risk") or {}).get("mtbf_hours"),
        "type": first.get("instance_type"),
        FINDING: links.to("inbox", finding=row["id"]),
    }


def _percent(part: float | None) -> float | None:
    return None if part is None else 100 * part
