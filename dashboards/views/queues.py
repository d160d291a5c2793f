"""Workloads that wait for GPUs, how long, why in the scheduler's words, and blocked by whom."""

from collections.abc import Mapping
from typing import Any

from dashboards import charts, data, links, maps, page, tabs
from dashboards.figures import fleet, queues
from dashboards.page import PageRequest, format_hours, format_money
from dashboards.views.fleet import HOLDERS, get_time

TITLE, ICON = "Queues", ":material/hourglass_top:"

WAITING = {
    "workload": page.configure_workload(),
    "gpus": page.configure_number("GPUs"),
    "hours": page.configure_number("hours", "the longest wait of its pods"),
    "why": page.name("why (the scheduler's words)", "large"),
    "blocked_by": page.name("blocked by"),
    "fits": page.name("where it would fit"),
    "team": page.name("team", "small"),
    "queue": page.name("queue", "small"),
    "priority": page.name("priority", "small"),
    "gpu_hours": page.configure_number("GPU-hours waited"),
    "pods": page.configure_number("pods"),
    "since": page.configure_time("since"),
}
PAIRS = {
    "waits": page.name("waits"),
    "because_of": page.name("blocked by"),
    "how": page.name("which"),
    "gpu_hours": page.configure_number("GPU-hours"),
    "usd": page.configure_usd("finding, USD"),
    "why": page.name("why", "large"),
    "kind": page.name("kind", "small"),
    "cluster": page.name("cluster", "small"),
    "id": page.name("finding", "small"),
}
WAITS = {
    "name": page.name("name"),
    "p50_minutes": page.configure_number("half waited less, minutes"),
    "p95_minutes": page.configure_number("19 of 20 waited less, minutes"),
    "longest_minutes": page.configure_number("longest, minutes"),
    "placed": page.configure_number("pods placed"),
    "waiting": page.configure_number("pods that wait"),
    "gpu_hours": page.configure_number("GPU-hours waited"),
}
QUOTAS = {
    "name": page.name("quota"),
    "kind": page.name("kind", "small"),
    "parent": page.name("cohort or parent", "small"),
    "nominal": page.configure_number("guaranteed GPUs"),
    "used": page.configure_number("used"),
    "borrowed": page.configure_number("borrowed"),
    "waiting": page.configure_number("waited for"),
    "pending": page.configure_number("workloads waiting"),
    "limit": page.configure_number("limit"),
    "resource": page.name("resource"),
    "ts": page.configure_time("as of"),
    "cluster": page.name("cluster", "small"),
}
UNKNOWN, NOT_ACCOUNTED = "unknown", "the newest hour has no ledger yet"
LINES = {
    "waiting_gpus": ("waited for", charts.RED),
    "idle_gpus": ("allocated, idle", charts.AMBER),
    "free_gpus": ("free", charts.GREY),
}


def show(request: PageRequest) -> None:
    """Draw the page."""
    page.show_card(show_headline, request)
    page.show_card(show_waiting, request)
    page.show_card(show_more, request)


def show_headline(request: PageRequest) -> None:
    """Show how many GPUs are waited for, and draw them beside the free and idle ones."""
    rows = data.query(queues.read_waiting, request.window, request.filters).to_pylist()
    over = data.query(queues.read_hours, request.window, request.filters).to_pylist()
    last = over[-1] if over else {}
    idle, free = last.get("idle_gpus"), last.get("free_gpus")
    page.show_metrics(
        (
            "Waited for now",
            f"{sum(r['gpus'] for r in rows):,.0f} GPUs",
            f"{sum(r['pods'] for r in rows):,} pods of {len(rows):,} workloads",
        ),
        (
            "Longest wait now",
            f"{max((r['hours'] for r in rows), default=0.0):,.1f} h",
            f"{format_hours(sum(r['gpu_hours'] for r in rows))} waited so far",
        ),
        (
            "Allocated, idle meanwhile",
            UNKNOWN if idle is None else f"{idle:,.1f} GPUs",
            NOT_ACCOUNTED if idle is None else "in the newest hour",
        ),
        (
            "Free meanwhile",
            UNKNOWN if free is None else f"{free:,.1f} GPUs",
            NOT_ACCOUNTED if free is None else "in the newest hour",
        ),
    )
    page.chart(
        maps.track(
            over,
            {key: name for key, (name, _) in LINES.items()},
            (request.window.start, request.window.end),
            title="GPUs",
            form=maps.GPU_FORMAT,
            height=220,
            colours=[colour for _, colour in LINES.values()],
        ),
        "GPUs that are waited for beside those that lie free and those that are allocated and idle",
    )
    if request.filters.model or request.filters.pool:
        page.note("Who waits has no model and no pool yet: these filters apply to the GPUs only.")


def show_waiting(request: PageRequest) -> None:
    """List the waiting workloads."""
    page.show_heading("Who waits now")
    rows = data.query(queues.read_waiting, request.window, request.filters).to_pylist()
    if not rows:
        page.show_nothing(
            "No pod waits for a GPU.",
            "Pods are known by the Kubernetes collector; `fallow doctor` says whether it runs.",
        )
        return
    blocked_pairs = data.query(queues.read_pairs, request.window, request.filters)
    places = data.query(queues.read_places, request.window)
    table_rows = [
        {
            **row,
            "fits": places.get((row["cluster"], row["workload"]), UNKNOWN),
            "why": row["message"] or "unknown: no event of the scheduler was seen",
            "blocked_by": ", ".join(queues.read_blockers(row, blocked_pairs)) or "no quota",
        }
        for row in rows
    ]
    page.show_table(
        table_rows,
        WAITING,
        table_name="Workloads that wait for GPUs",
        open_row=lambda row: _open_workload(rows[row]),
    )
    unexplained = sum(not row["message"] for row in rows)
    page.note(
        "Click a row to see the workload's timeline. Blocked by: a quota's or a queue's holder, as "
        "the last analysis found; no quota: GPUs are missing, and below is who holds them idle. "
        "Where it would fit: all its pods at once on devices known to be free "
        "(`fallow why-pending WORKLOAD` shows every place)."
        + (
            f" {unexplained:,} of {len(rows):,} have no reason of a scheduler."
            if unexplained
            else ""
        )
    )


def show_more(request: PageRequest) -> None:
    """Show why they wait: blocking pairs, owners of idle GPUs, earlier waits, or quotas."""
    parts: tabs.Tabs = {
        "allocated, idle meanwhile": show_holders,
        "how long": show_waits,
        "quotas": show_quotas,
    }
    if data.query(queues.read_pairs, request.window, request.filters):
        parts = {"blocked by": show_pairs, **parts}
    else:
        parts = {**parts, "blocked by": show_pairs}
    tabs.choose_tab(parts, request)


def show_pairs(request: PageRequest) -> None:
    """List blocked workloads with what blocks them."""
    table_rows = data.query(queues.read_pairs, request.window, request.filters)
    if not table_rows:
        page.show_nothing(
            "No quota keeps anybody waiting, as far as the last analysis saw.",
            "It reads ResourceQuota, ElasticQuota and the queues of Kueue, Volcano and KAI; "
            "without any, see who holds GPUs idle meanwhile.",
        )
        return
    rows = [{name: getattr(pair, name) for name in PAIRS} for pair in table_rows]
    page.show_table(
        rows,
        PAIRS,
        table_name="Who waits, blocked by whom",
        open_row=lambda row: links.open_page("findings", finding=table_rows[row].id),
    )
    page.note(
        f"As the last analysis found it, at {max(p.found_at for p in table_rows):%Y-%m-%d %H:%M} "
        "UTC. "
        "A borrower's GPU-hours are those above its guarantee while the other waited."
    )


def show_holders(request: PageRequest) -> None:
    """List the owners of idle GPUs while others wait."""
    rows = data.query(fleet.read_holders, get_time(request), request.filters).to_pylist()
    if not rows:
        page.show_nothing(
            "No allocated GPU is idle now.", "Who waits needs GPUs that are not there."
        )
        return
    page.show_table(
        rows,
        HOLDERS,
        table_name="Workloads that hold GPUs idle now",
        height=280,
        open_row=lambda row: _open_workload(rows[row]),
    )
    usd_known = [r["idle_usd_h"] for r in rows if r["idle_usd_h"] is not None]
    page.note(
        f"{format_money(sum(usd_known, page.convert_exact(0)) if usd_known else None)} per "
        "hour. Whether those "
        "who wait could use these GPUs, the scheduler's words above say. A click on a row opens "
        "the workload's timeline."
    )


def show_waits(request: PageRequest) -> None:
    """Show how long pods waited."""
    key = page.choose_by(queues.KEYS)
    rows = data.query(queues.read_waits, request.window, request.filters, key)
    if not rows.num_rows:
        page.show_nothing("No pod asked for a GPU in this window.", "Choose a longer window.")
        return
    page.show_table(rows, WAITS, table_name=f"Waits by {key}")
    page.note("Minutes are of pods that were placed in the window; who waits still is not in them.")


def show_quotas(request: PageRequest) -> None:
    """List the quotas."""
    rows = data.query(queues.read_quotas, request.window, request.filters)
    if not rows.num_rows:
        page.show_nothing(
            "No quota of GPUs was seen on the window's last day.",
            "The Kubernetes collector reads ResourceQuota, ElasticQuota and queues where they are.",
        )
        return
    page.show_table(rows, QUOTAS, table_name="Quotas of GPUs as last seen", missing="not set")


def _open_workload(row: Mapping[str, Any]) -> None:
    links.open_timeline(cluster=row["cluster"], workload=row["workload"])
