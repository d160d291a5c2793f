"""My workloads: what they cost, how much of it computed, and what is planned for them."""

from dashboards import charts, data, links, page, whose
from dashboards.figures import mine
from dashboards.page import Asked, hours, money, share

TITLE, ICON, ORDER = "My workloads", ":material/work:", 10

COLUMNS = {
    "workload": page.name("workload", "large"),
    "timeline": links.column(),
    "state": page.name("now", "small"),
    "usd": page.usd("USD"),
    "idle_usd": page.usd("of it idle"),
    "productive_pct": page.percent("computed"),
    "gpu_hours": page.number("GPU-hours"),
    "says": page.name("what is planned"),
    "last_hour": page.moment("last hour"),
    "team": page.name("team", "small"),
}


def show(asked: Asked) -> None:
    """Draw the page."""
    page.card(workloads, asked)


def workloads(asked: Asked) -> None:
    """Draw and list what is one's own."""
    owners = whose.owners(asked)
    if not owners:
        return
    rows = data.ask(mine.workloads, asked.window, asked.filters, owners).to_pylist()
    if not rows:
        whose.none(owners)
        return
    known = [row["usd"] for row in rows if row["usd"] is not None]
    idle = [row["idle_usd"] for row in rows if row["idle_usd"] is not None]
    whole = sum(row["gpu_hours"] for row in rows)
    lost = sum(row["idle_gpu_hours"] for row in rows)
    planned = [r for r in rows if r["says"] and not r["says"].startswith("nothing")]
    page.metrics(
        ("Cost", money(sum(known) if known else None), f"{len(rows):,} workloads"),
        ("GPU-hours", hours(whole), "in this window"),
        ("Idle", money(sum(idle) if idle else None), f"{share(lost, whole)} of GPU-hours"),
        ("Something is planned", f"{len(planned):,}", "see What is coming"),
    )
    drawn = [{"name": r["workload"], "usd": r["usd"], "idle": r["idle_usd"]} for r in rows[:15]]
    if any(row["usd"] for row in drawn):
        page.chart(
            charts.ranked_bars(drawn, part="idle", most=10),
            "Dollars by workload; the amber part was idle",
        )
    made = [
        {**r, "timeline": links.timeline(cluster=r["cluster"], workload=r["workload"])}
        for r in rows
    ]
    page.table(made, COLUMNS, called="My workloads, the dearest first")
