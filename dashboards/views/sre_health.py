"""Boards that fail, throttle or run slow, and nodes that were away."""

from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc

from dashboards import charts, choosing, data, links, page
from dashboards.figures import found, health, spend
from dashboards.page import Asked, hours, money

TITLE, ICON, ORDER = "Health", ":material/monitor_heart:", 60
BROKEN = ("unavailable", "lost")

FOUND = {
    "kind": page.name("what", "small"),
    "name": page.name("of"),
    "timeline": links.column(),
    "evidence": page.name("evidence", "small"),
    "usd": page.usd("USD"),
    "gpu_hours": page.number("GPU-hours"),
    "why": page.name("why", "large"),
    "advice": page.name("what to do", "large"),
    "caution": page.name("beware"),
    "id": page.name("finding", "small"),
}
AWAY = {
    "node": page.name("node"),
    "timeline": links.column(),
    "unavailable_usd": page.usd("not available, USD"),
    "unavailable_gpu_hours": page.number("GPU-hours"),
    "lost_usd": page.usd("work lost, USD"),
    "lost_gpu_hours": page.number("GPU-hours lost"),
    "pool": page.name("pool", "small"),
    "cluster": page.name("cluster", "small"),
}
XIDS = {
    "node": page.name("node"),
    "device": page.name("device"),
    "timeline": links.column(),
    "xid": page.number("XID"),
    "meaning": page.name("what it says"),
    "severity": page.name("severity", "small"),
    "action": page.name("NVIDIA's immediate action"),
    "first_hour": page.moment("since"),
    "last_hour": page.moment("until"),
    "hours": page.number("hours shown", "exporters show the last XID until they restart"),
    "pod": page.name("held then by"),
    "model": page.name("model", "small"),
}
CLOCKS = {
    "node": page.name("node"),
    "device": page.name("device"),
    "timeline": links.column(),
    "slower_pct": page.number("slower than its model, %"),
    "clock_mhz": page.number("MHz while busy"),
    "peers_mhz": page.number("median of the model"),
    "hot_pct": page.percent("of busy hours throttled"),
    "reasons": page.name("by"),
    "temp_c": page.number("hottest, °C"),
    "busy_hours": page.number("busy hours"),
    "model": page.name("model", "small"),
}
EVENTS = {
    "ts": page.moment("when"),
    "node": page.name("node"),
    "reason": page.name("reason", "small"),
    "message": page.name("message", "large"),
    "type": page.name("type", "small"),
    "cluster": page.name("cluster", "small"),
}


def show(asked: Asked) -> None:
    """Draw the page."""
    page.card(headline, asked)
    page.card(findings, asked)
    page.card(more, asked)


def headline(asked: Asked) -> None:
    """Say what failing hardware cost."""
    rows = data.ask(health.away, asked.window, asked.filters).to_pylist()
    sick = data.ask(found.found, asked.window, asked.filters, "reliability")
    struck = data.ask(health.xids, asked.window, asked.filters)
    of = {name: [row[f"{name}_usd"] for row in rows] for name in BROKEN}
    time = {name: sum(row[f"{name}_gpu_hours"] for row in rows) for name in BROKEN}
    kinds = [one.kind for one in sick]
    page.metrics(
        ("Not available", hours(time["unavailable"]), money(_sum(of["unavailable"]))),
        ("Work lost", hours(time["lost"]), money(_sum(of["lost"]))),
        (
            "Sick nodes",
            f"{kinds.count('sick_node'):,}",
            f"{kinds.count('suspect_gpu'):,} suspect, {kinds.count('slow_gpu'):,} with slow GPUs",
        ),
        (
            "Devices with an XID",
            f"{len({(row['cluster'], row['device']) for row in struck.to_pylist()}):,}",
            f"{struck.num_rows:,} device and code pairs",
        ),
    )
    daily = data.ask(spend.daily, asked.window, asked.filters)
    drawn = daily.filter(pc.is_in(daily["state"], pa.array(BROKEN)))
    if drawn.num_rows:
        page.chart(
            charts.states_over_time(drawn, "gpu_hours", height=180),
            "GPU-hours per day that were not available or lost",
        )


def findings(asked: Asked) -> None:
    """List what the last analysis says is sick."""
    page.heading("What the last analysis says")
    made = data.ask(found.found, asked.window, asked.filters, "reliability")
    if not made:
        page.none(
            asked,
            ("reliability",),
            "No sick board, outage or lost work was found in this window.",
            "The `reliability` analyzer says so when XIDs, ECC counters, throttling or node events "
            "show it; what telemetry shows itself stands below.",
        )
        return
    rows = [
        {
            **{name: getattr(one, name) for name in ("kind", "evidence", "usd", "gpu_hours")},
            **{name: getattr(one, name) for name in ("why", "advice", "caution", "id")},
            "name": f"{one.namespace}/{one.workload_kind}/{one.workload}"
            if one.namespace
            else f"{one.workload_kind}/{one.workload}",
            "timeline": _timeline(one),
        }
        for one in made
    ]
    page.table(rows, FOUND, called="Sick boards, outages, lost work and slow GPUs")


def more(asked: Asked) -> None:
    """Show what telemetry and the cluster say themselves."""
    parts = {
        "XIDs": xids,
        "throttled and slow": clocks,
        "away": away,
        "events of nodes": events,
    }
    choosing.one_of(parts, asked)


def xids(asked: Asked) -> None:
    """List the XIDs."""
    rows = data.ask(health.xids, asked.window, asked.filters).to_pylist()
    if not rows:
        page.nothing(
            "No device showed an XID in this window.",
            "`fallow doctor` says whether the exporters give `DCGM_FI_DEV_XID_ERRORS`.",
        )
        return
    page.table(_linked(rows), XIDS, called="XIDs by device")


def clocks(asked: Asked) -> None:
    """List what throttled or ran slow."""
    rows = data.ask(health.clocks, asked.window, asked.filters).to_pylist()
    if not rows:
        page.nothing(
            "No GPU throttled or ran below nine tenths of its model's clock while busy.",
            "`fallow doctor` says whether the exporters give clocks and throttle reasons.",
        )
        return
    page.table(_linked(rows), CLOCKS, called="GPUs that throttled or ran slow while busy")
    page.note(
        "Beside all devices of the model that were busy half an hour or more. What is computed may "
        "clock lower too: a finding compares within one workload."
    )


def away(asked: Asked) -> None:
    """List nodes that were away."""
    rows = data.ask(health.away, asked.window, asked.filters).to_pylist()
    if not rows:
        page.nothing("Every node was there all the time.", "And no work is known to be lost.")
        return
    made = [{**r, "timeline": links.timeline(cluster=r["cluster"], node=r["node"])} for r in rows]
    page.table(made, AWAY, called="Nodes that were not available or lost work")


def events(asked: Asked) -> None:
    """List what the cluster said of nodes."""
    rows = data.ask(health.events, asked.window, asked.filters)
    if not rows.num_rows:
        page.nothing(
            "The cluster said nothing of its nodes in this window.",
            "Events come from the Kubernetes collector; `fallow doctor` says whether it looks.",
        )
        return
    page.table(rows, EVENTS, called="Events of nodes", height=280)


def _linked(rows: list[dict[str, object]]) -> list[dict[str, object]]:
    return [
        {**r, "timeline": links.timeline(cluster=str(r["cluster"]), device=str(r["device"]))}
        for r in rows
    ]


def _timeline(one: found.Found) -> str | None:
    if one.namespace:
        name = f"{one.namespace}/{one.workload_kind}/{one.workload}"
        return links.timeline(cluster=one.cluster, workload=name)
    return (
        links.timeline(cluster=one.cluster, node=one.workload)
        if (one.workload_kind == "Node")
        else None
    )


def _sum(parts: list[Decimal | None]) -> Decimal | None:
    known = [part for part in parts if part is not None]
    return sum(known, Decimal()) if known or not parts else None
