"""Every GPU as a cell: what it does now, and what burns idle per hour."""

from datetime import datetime

from dashboards import choosing, data, links, maps, page
from dashboards.figures import fleet
from dashboards.page import Asked, money

TITLE, ICON, ORDER = "Fleet now", ":material/grid_view:", 10

NODES = {
    "node": page.name("node"),
    "timeline": links.column(),
    "idle_usd_h": page.usd("idle, USD per hour"),
    "idle_gpus": page.number("idle GPUs"),
    "free_gpus": page.number("free GPUs"),
    "unknown_gpus": page.number("unknown"),
    "gpus": page.number("GPUs"),
    "usd_h": page.usd("USD per hour"),
    "workload": page.name("most of it held by", "large"),
    "pool": page.name("pool", "small"),
    "model": page.name("model", "small"),
}
HOLDERS = {
    "workload": page.name("workload", "large"),
    "timeline": links.column(),
    "idle_usd_h": page.usd("idle, USD per hour"),
    "idle_gpus": page.number("idle GPUs"),
    "team": page.name("team", "small"),
    "model": page.name("model", "small"),
    "nodes": page.number("nodes"),
}


def show(asked: Asked) -> None:
    """Draw the page."""
    page.card(states, asked)
    page.card(cells, asked, height=400)
    page.card(more, asked)


def now(asked: Asked) -> datetime:
    """Return the moment that is now: the end of what is accounted, at most the window's end."""
    known = asked.extent.accounted
    return min(asked.window.end, known) if known else asked.window.end


def states(asked: Asked) -> None:
    """Say the fleet in four figures."""
    made = data.ask(fleet.states, now(asked), asked.filters)
    if not made:
        page.nobody(asked)
        return
    of = {pace.state: pace for pace in made}
    whole = sum(pace.gpus for pace in made)
    priced = [pace.usd_h for pace in made if pace.usd_h is not None]
    bill = sum(priced, page.exact(0)) if priced else None
    page.metrics(
        ("GPUs", f"{whole:,.0f}", f"{money(bill)} per hour"),
        *(_metric(label, of.get(state), bool(priced)) for label, state in _TOLD),
    )
    hour = fleet.hour(now(asked))
    page.note(
        f"The hour {hour.start:%Y-%m-%d %H:%M} to {hour.end:%H:%M} UTC, the newest one in the "
        "books. A cell shows the state that its GPU was in longest; the figures count seconds."
    )


def cells(asked: Asked) -> None:
    """Draw the GPUs."""
    rows = data.ask(fleet.cells, now(asked), asked.filters).to_pylist()
    if not rows:
        return
    whole = sum(pace.gpus for pace in data.ask(fleet.states, now(asked), asked.filters))
    page.chart(
        maps.cells(rows, told=(("model", "model"), ("device", "device"))),
        "GPUs as cells, node by node, coloured by what they do now",
    )
    shown = sum(row["gpus"] for row in rows)
    if any(row["device"] is None for row in rows):
        page.note("GPUs of one node in one state are one cell, as wide as they are many.")
    if shown < whole - 0.5:
        page.note(
            f"Drawn are {shown:,.0f} of {whole:,.0f} GPUs, those of the nodes that burn the most "
            "idle: a browser takes no more. Filter by cluster or pool to see the others."
        )


def more(asked: Asked) -> None:
    """List who holds GPUs idle, or the nodes."""
    choosing.one_of({"who holds idle": holders, "nodes": nodes}, asked)


def holders(asked: Asked) -> None:
    """List who holds GPUs idle."""
    rows = data.ask(fleet.holders, now(asked), asked.filters).to_pylist()
    if not rows:
        page.nothing("Nobody holds a GPU idle now.", "Free ones are above, in grey.")
        return
    made = [
        {**r, "timeline": links.timeline(cluster=r["cluster"], workload=r["workload"])}
        for r in rows
    ]
    page.table(made, HOLDERS, called="Workloads that hold GPUs idle now", height=320)


def nodes(asked: Asked) -> None:
    """List the nodes."""
    rows = data.ask(fleet.nodes, now(asked), asked.filters).to_pylist()
    if not rows:
        return
    made = [{**r, "timeline": links.timeline(cluster=r["cluster"], node=r["node"])} for r in rows]
    page.table(made, NODES, called="Nodes by dollars that burn idle per hour", height=320)
    if len(rows) == fleet.MOST_ROWS:
        page.note(f"The {fleet.MOST_ROWS} first; filter by cluster or pool to see others.")


_TOLD = (
    ("Productive", "productive"),
    ("Held idle", "idle"),
    ("Free", "free"),
    ("Unknown", "unknown"),
)


def _metric(label: str, pace: fleet.Pace | None, priced: bool) -> tuple[str, str, str]:
    usd = pace.usd_h if pace else (page.exact(0) if priced else None)
    return label, f"{pace.gpus if pace else 0:,.1f}", f"{money(usd)} per hour"
