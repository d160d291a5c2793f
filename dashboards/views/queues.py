"""Workloads that wait for GPUs: how long, at what price, why, blocked by whom, and the ways in."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from msgspec import to_builtins

from capacity.queue.records import QueuedWorkload
from dashboards import charts, data, links, maps, page, tabs
from dashboards.figures import fleet, inbox, queues
from dashboards.figures.query import Filters
from dashboards.page import PageRequest, format_hours, format_money
from dashboards.views import queues_what_if
from dashboards.views.fleet import HOLDERS, get_time

TITLE, ICON = "Queues", ":material/hourglass_top:"

WAITING = page.read_columns("queues/waiting")
PAIRS = page.read_columns("queues/pairs")
WAITS = page.read_columns("queues/waits")
QUOTAS = page.read_columns("queues/quotas")
UNKNOWN, NOT_ACCOUNTED = "unknown", "the newest hour has no ledger yet"
FILTERED = "nothing is accounted for the filters"
LINES = {
    "waiting_gpus": ("waited for", charts.RED),
    "idle_gpus": ("allocated, idle", charts.STATE_COLOURS["idle"]),
    "free_gpus": ("free", charts.STATE_COLOURS["free"]),
}
LINES_WORDS = (
    "GPUs that are waited for beside those that lie free and those that are allocated and idle"
)
DEMAND_LINES = {
    "demand_gpus": ("demand", charts.RED),
    "paid_gpus": ("paid", charts.GREY),
    "allocated_gpus": ("allocated", charts.ALLOCATED),
    "effective_gpus": ("effective", charts.STATE_COLOURS["productive"]),
}
DEMAND_WORDS = (
    "Demand (allocated or waited for) beside the GPUs that are paid, allocated, and in effective "
    "use where at least nine tenths of it are measured"
)


def show(request: PageRequest) -> None:
    """Draw the page."""
    page.show_card(show_headline, request)
    page.show_card(show_waiting, request)
    page.show_card(show_over_time, request)
    page.show_card(show_more, request)


def show_headline(request: PageRequest) -> None:
    """Show how many GPUs are waited for, and how many are idle or free meanwhile."""
    rows = _list_waiting(request)
    hours = data.query(queues.list_demand, request.window, request.filters)
    idle, free = (hours[-1].idle_gpus, hours[-1].free_gpus) if hours else (None, None)
    waiting = queues.sum_waiting(rows, _read_records(request))
    missing = FILTERED if request.filters.named else NOT_ACCOUNTED
    page.show_metrics(
        (
            "Waited for now",
            f"{waiting.gpus:,.0f} GPUs",
            f"{waiting.pods:,} pods of {waiting.workloads:,} workloads",
        ),
        (
            "Cost of waiting",
            format_money(waiting.usd),
            f"{format_hours(waiting.gpu_hours)} waited so far; in no bill",
        ),
        (
            "Longest wait now",
            f"{waiting.longest_hours:,.1f} h",
            "since it was created or queued",
        ),
        (
            "Allocated, idle meanwhile",
            UNKNOWN if idle is None else f"{idle:,.1f} GPUs",
            missing if idle is None else "in the newest hour",
        ),
        (
            "Free meanwhile",
            UNKNOWN if free is None else f"{free:,.1f} GPUs",
            missing if free is None else "in the newest hour",
        ),
    )
    if any(row["gpus"] is None for row in rows):
        page.note("A job whose number of GPUs is not known counts in no figure and no curve.")


def show_over_time(request: PageRequest) -> None:
    """Draw the GPUs that are waited for beside the free and idle ones, and demand beside use."""
    hours = data.query(queues.list_demand, request.window, request.filters)
    span = (request.window.start, request.window.end)
    over = [to_builtins(hour, builtin_types=(datetime,)) for hour in hours]
    for heading, lines, words in (
        ("Waiting, beside idle and free GPUs", LINES, LINES_WORDS),
        ("Demand, beside what is paid and used", DEMAND_LINES, DEMAND_WORDS),
    ):
        page.show_heading(heading)
        page.chart(
            maps.track(
                over,
                {key: name for key, (name, _) in lines.items()},
                span,
                title="GPUs",
                form=maps.GPU_FORMAT,
                height=220,
                colours=[colour for _, colour in lines.values()],
            ),
            words,
        )
    if request.filters.model or request.filters.pool:
        page.note("Who waits has no model and no pool yet: these filters apply to the GPUs only.")


def show_waiting(request: PageRequest) -> None:
    """List the waiting workloads."""
    page.show_heading("Who waits now")
    rows = _list_waiting(request)
    if not rows:
        page.show_nothing(
            "No pod waits for a GPU.",
            "Pods are known by the Kubernetes collector; `fallow doctor` says whether it runs.",
        )
        return
    blocked_pairs = data.query(queues.read_pairs, request.window, request.filters)
    records = _read_records(request)
    table_rows = [
        _build_row(row, blocked_pairs, records.get((row["cluster"], row["workload"])))
        for row in rows
    ]
    page.show_table(
        table_rows,
        WAITING,
        table_name="Workloads that wait for GPUs",
        open_row=lambda row: _open_workload(rows[row]),
        on_phone=("waiting_cost", "workload", "reason", "way"),
    )
    page.note(
        "Click a row to see the workload's timeline. Blocked by, below: who holds what it could "
        "use, idle or at a lower priority, and whom the last analysis of quotas names. The price "
        "of the wait is its GPU-hours at the mean price of the nodes that take it; the bill does "
        "not have it. The way in has a placement on real nodes; `fallow why-pending WORKLOAD` "
        "shows all ways."
    )


def _list_waiting(request: PageRequest) -> list[dict[str, Any]]:
    """Return who waits: pods by their workload, and jobs that have no pods yet."""
    rows = data.query(queues.read_waiting, request.window, request.filters).to_pylist()
    return queues.list_waiting(rows, _read_records(request), request.filters)


def _build_row(
    row: Mapping[str, Any],
    blocked_pairs: Sequence[queues.BlockedPair],
    record: QueuedWorkload | None,
) -> dict[str, Any]:
    """Return a row of the table; a workload without a record is unknown."""
    blockers = _name_blockers(queues.list_blockers(row, blocked_pairs, record))
    if record is None:
        return {**row, "reason": UNKNOWN, "way": UNKNOWN, "blocked_by": blockers or UNKNOWN,
                "why": row["message"] or UNKNOWN, "waiting_cost": None}  # fmt: skip
    return {
        **row,
        "reason": ", ".join(reason.words for reason in record.reasons),
        "way": record.describe_way(),
        "blocked_by": blockers or record.held_by_others or "nobody",
        "why": record.reasons[0].text,
        "waiting_cost": record.waiting_cost,
    }


def _name_blockers(names: Sequence[str]) -> str:
    """Return the first of the blocking workloads and how many more; their table names all."""
    return f"{names[0]} +{len(names) - 1}" if len(names) > 1 else "".join(names)


def show_more(request: PageRequest) -> None:
    """Show why they wait: blocking pairs, owners of idle GPUs, earlier waits, or quotas."""
    parts: tabs.Tabs = {
        "allocated, idle meanwhile": show_holders,
        "how long": show_waits,
        "quotas": show_quotas,
        "what if": queues_what_if.show,
    }
    if _list_pairs(request):
        parts = {"blocked by": show_pairs, **parts}
    else:
        parts = {**parts, "blocked by": show_pairs}
    tabs.choose_tab(parts, request)


def show_pairs(request: PageRequest) -> None:
    """List blocked workloads with what blocks them."""
    table_rows = _list_pairs(request)
    if not table_rows:
        page.show_nothing(
            "Nobody keeps another waiting.",
            "No workload holds GPUs, idle or at a lower priority, that one that waits could use, "
            "and the last analysis saw no quota that keeps anybody waiting.",
        )
        return
    rows = [{name: getattr(pair, name) for name in PAIRS} for pair in table_rows]

    def open_row(row: int) -> None:
        pair = table_rows[row]
        if pair.id:
            links.open_page("findings", finding=pair.id)
        else:
            links.open_timeline(cluster=pair.cluster, workload=pair.because_of)

    page.show_table(
        rows,
        PAIRS,
        table_name="Who waits, blocked by whom",
        open_row=open_row,
        missing="no finding or price",
    )
    times = [pair.found_at for pair in table_rows if pair.found_at]
    analyzed = f" Quotas as analyzed at {max(times):%Y-%m-%d %H:%M} UTC." if times else ""
    page.note(
        "GPU-hours of holders: idle since the other one waits, in whole hours of the ledger; of a "
        "borrower: above its guarantee while the other waited." + analyzed
    )


def _list_pairs(request: PageRequest) -> tuple[queues.BlockedPair, ...]:
    """Return who blocks whom: holders of what is waited for, then quotas."""
    rows = _list_waiting(request)
    records = _read_records(request)
    listed = [records.get((row["cluster"], row["workload"])) for row in rows]
    every_team = Filters(cluster=request.filters.cluster)
    findings = data.query(inbox.list_inbox, request.window, every_team).to_pylist()
    ranked = reversed(inbox.order_by_dollars(findings))  # of several, the most dollars stay
    cases = {(row["cluster"], row["workload"]): row for row in ranked}
    return (
        *queues.list_holder_pairs((record for record in listed if record), cases),
        *data.query(queues.read_pairs, request.window, request.filters),
    )


def _read_records(request: PageRequest) -> Mapping[tuple[str, str], QueuedWorkload]:
    """Return the record of each workload that waits.

    Placing pods reads the whole fleet: it is left out where nothing waits.
    """
    if not _is_waiting(request):
        return {}
    records: Mapping[tuple[str, str], QueuedWorkload] = data.query(
        queues.read_queue, request.window
    )
    return records


def _is_waiting(request: PageRequest) -> bool:
    """Return whether a pod waits, or a job that has none yet."""
    waiting = data.query(queues.read_waiting, request.window, request.filters)
    jobs = data.query(queues.read_jobs, request.window)
    return bool(waiting.num_rows or jobs.num_rows)


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
