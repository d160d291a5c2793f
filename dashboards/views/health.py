"""GPUs that fail, throttle or run slow, and nodes that were not ready."""

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from dashboards import charts, data, links, page, tabs
from dashboards.detail_words import describe_kind
from dashboards.figures import analyzer_findings, health, spend
from dashboards.page import PageRequest, format_hours, format_money
from dashboards.text import format_lost
from dashboards.views import health_incidents

TITLE, ICON = "Health", ":material/monitor_heart:"
BROKEN = ("unavailable", "lost")
UNFILTERED = ("team", "model", "pool")
NODE = "Node"
"""A node is to be drained or repaired, whatever it cost so far."""

FINDING_COLUMNS = page.read_columns("health/finding_columns")
AWAY = page.read_columns("health/away")
XIDS = page.read_columns("health/xids")
CLOCKS = page.read_columns("health/clocks")
EVENTS = page.read_columns("health/events")


def show(request: PageRequest) -> None:
    """Draw the page."""
    page.show_card(show_headline, request)
    page.show_card(show_findings, request)
    page.show_card(show_failures, request)
    page.show_card(show_more, request)


def show_headline(request: PageRequest) -> None:
    """Show the cost of failing hardware."""
    rows = data.query(health.read_away, request.window, request.filters).to_pylist()
    sick = data.query(health.list_sick_nodes, request.window, request.filters)
    findings = data.query(
        analyzer_findings.list_findings, request.window, request.filters, "reliability"
    )
    xid_rows = data.query(health.read_xids, request.window, request.filters)
    of = {name: [row[f"{name}_usd"] for row in rows] for name in BROKEN}
    time = {name: sum(row[f"{name}_gpu_hours"] for row in rows) for name in BROKEN}
    kinds = [finding.kind for finding in findings]
    by_findings = len({(f.cluster, f.workload) for f in findings if f.kind in health.SICK})
    counts = f"{by_findings:,} by findings, {len(sick) - by_findings:,} by incidents alone"
    page.show_metrics(
        ("Not available", format_hours(time["unavailable"]), format_money(_sum(of["unavailable"]))),
        ("Work lost", format_hours(time["lost"]), format_money(_sum(of["lost"]))),
        (
            "Sick nodes",
            f"{len(sick):,}",
            f"{counts}; {kinds.count('slow_gpu'):,} slow GPUs",
        ),
        (
            "Devices with an XID",
            f"{len({(row['cluster'], row['device']) for row in xid_rows.to_pylist()}):,}",
            f"{xid_rows.num_rows:,} device and code pairs",
        ),
    )
    daily = data.query(spend.read_daily, request.window, request.filters)
    broken_rows = daily.filter(pc.is_in(daily["state"], pa.array(BROKEN)))
    broken_rows = broken_rows.drop(["allocated_gpu_hours"])  # of all states alone it is a share
    if broken_rows.num_rows:
        page.chart(
            charts.draw_states_over_time(broken_rows, "gpu_hours", height=180),
            "GPU-hours per day that were not available or lost",
        )


def show_findings(request: PageRequest) -> None:
    """List the sick devices and nodes of the last analysis: nodes first, then by dollars."""
    page.show_heading("What the last analysis says")
    findings_listed = data.query(
        analyzer_findings.list_findings, request.window, request.filters, "reliability"
    )
    if not findings_listed:
        page.show_no_findings(
            request,
            ("reliability",),
            "No sick GPU, outage or lost work was found in this window.",
            "The `reliability` analyzer says so when XIDs, ECC counters, throttling or node events "
            "show it; what telemetry shows itself stands below.",
        )
        return
    findings_listed = tuple(sorted(findings_listed, key=lambda row: row.workload_kind != NODE))
    rows = [
        {
            **{name: getattr(finding, name) for name in ("kind", "evidence", "usd", "gpu_hours")},
            **{name: getattr(finding, name) for name in ("why", "verb", "advice", "caution", "id")},
            "cluster": finding.cluster,
            "name": f"{finding.namespace}/{finding.workload_kind}/{finding.workload}"
            if finding.namespace
            else f"{finding.workload_kind}/{finding.workload}",
            "kind": describe_kind(finding.kind),
            "timeline": _build_timeline_link(finding),
        }
        for finding in findings_listed
    ]
    page.show_table(
        rows,
        FINDING_COLUMNS,
        table_name="Sick GPUs, outages, lost work and slow GPUs",
        open_row=lambda row: links.open_page("findings", finding=findings_listed[row].id),
        on_phone=("usd", "name", "kind", "verb"),
    )
    page.note(
        "Nodes first: they are to be drained or repaired whatever they cost; then by dollars."
    )


def _explain_filters(request: PageRequest) -> str:
    """Return which filters do not narrow failures and incidents."""
    names = [name for name in request.filters.named if name in UNFILTERED]
    return f" The filter {', '.join(names)} does not narrow it." if names else ""


def show_failures(request: PageRequest) -> None:
    """Draw the failures that lost work, per day and cause."""
    page.show_heading("Failures by cause")
    rows = data.query(health.read_failures, request.window, request.filters)
    if not rows.num_rows:
        page.show_nothing(
            "No failure is known to have lost work in this window.",
            "Failures come from the Kubernetes collector's pods and events; `fallow doctor` says "
            f"whether it runs.{_bound_lost(request)}",
        )
        return
    page.chart(
        charts.draw_kinds_over_time(rows, "cause", "pods", title="pods that lost work"),
        "Pods that lost work per day, by cause",
    )
    lost = sum(amount or 0 for amount in rows["gpu_hours"].to_pylist())
    page.note(
        f"{sum(rows['pods'].to_pylist()):,} pods lost {format_hours(lost)} of work in this window."
        f"{_bound_lost(request)}{_explain_filters(request) or _explain_ledger(request, lost)}"
    )


def _bound_lost(request: PageRequest) -> str:
    """Return what the stored incidents lost where it is not known; empty = it is."""
    causes = data.query(health.read_incident_causes, request.window, request.filters).to_pylist()
    if all(row["lost_gpu_hours"] is not None for row in causes):
        return ""
    bounds = [row["most_lost_gpu_hours"] for row in causes]
    most = None if None in bounds else sum(bounds)
    return f" Work lost by all incidents: {format_lost(None, most)}."


def _explain_ledger(request: PageRequest, lost: float) -> str:
    """Return why the ledger has fewer hours as `lost` than failures lost; empty = it has not."""
    rows = data.query(health.read_away, request.window, request.filters).to_pylist()
    in_ledger = sum(row["lost_gpu_hours"] for row in rows)
    if format_hours(in_ledger) == format_hours(lost):
        return ""
    return (
        f" {format_hours(in_ledger)} of it are `Work lost` above: the hours in which its GPUs "
        "worked. The others, since the last checkpoint, are accounted as idle, startup or unknown."
    )


def show_more(request: PageRequest) -> None:
    """Show the telemetry's and the cluster's own data."""
    parts = {
        "incidents": health_incidents.show,
        "XIDs": show_xids,
        "throttled and slow": show_clocks,
        "away": show_away,
        "events of nodes": show_events,
    }
    tabs.choose_tab(parts, request)


def show_xids(request: PageRequest) -> None:
    """List the XIDs."""
    rows = data.query(health.read_xids, request.window, request.filters).to_pylist()
    if not rows:
        page.show_nothing(
            "No device showed an XID in this window.",
            "`fallow doctor` says whether the exporters give `DCGM_FI_DEV_XID_ERRORS`.",
        )
        return
    page.show_table(
        rows,
        XIDS,
        table_name="XIDs by device",
        open_row=_build_opener(rows, "device"),
        row_names=[f"{row['node']}: {row['device']}, XID {row['xid']}" for row in rows],
    )


def show_clocks(request: PageRequest) -> None:
    """List the devices that throttled or were slow."""
    rows = data.query(health.read_clocks, request.window, request.filters).to_pylist()
    if not rows:
        page.show_nothing(
            "No GPU throttled or ran below nine tenths of its model's clock while busy.",
            "`fallow doctor` says whether the exporters give clocks and throttle reasons.",
        )
        return
    page.show_table(
        rows,
        CLOCKS,
        table_name="GPUs that throttled or ran slow while busy",
        open_row=_build_opener(rows, "device"),
        row_names=[f"{row['node']}: {row['device']}" for row in rows],
    )
    page.note(
        "Beside all devices of the model that were busy half an hour or more. What is computed may "
        "clock lower too: a finding compares within one workload."
    )


def show_away(request: PageRequest) -> None:
    """List nodes that were not available."""
    rows = data.query(health.read_away, request.window, request.filters).to_pylist()
    if not rows:
        page.show_nothing("Every node was there all the time.", "And no work is known to be lost.")
        return
    page.show_table(
        rows,
        AWAY,
        table_name="Nodes that were not available or lost work",
        open_row=_build_opener(rows, "node"),
    )


def show_events(request: PageRequest) -> None:
    """List the cluster's events of nodes."""
    rows = data.query(health.read_events, request.window, request.filters).to_pylist()
    if not rows:
        page.show_nothing(
            "The cluster said nothing of its nodes in this window.",
            "Events come from the Kubernetes collector; `fallow doctor` says whether it runs.",
        )
        return
    page.show_table(
        rows,
        EVENTS,
        table_name="Events of nodes",
        open_row=_build_opener(rows, "node"),
        row_names=[f"{row['ts']:%Y-%m-%d %H:%M} {row['node']}: {row['reason']}" for row in rows],
    )


def _build_opener(rows: list[dict[str, Any]], key: str) -> Callable[[int], None]:
    """Return what opens the timeline of a row's node or device."""
    return lambda row: links.open_timeline(cluster=rows[row]["cluster"], **{key: rows[row][key]})


def _build_timeline_link(finding: analyzer_findings.FindingRow) -> str | None:
    if finding.namespace:
        name = f"{finding.namespace}/{finding.workload_kind}/{finding.workload}"
        return links.build_timeline_link(cluster=finding.cluster, workload=name)
    return (
        links.build_timeline_link(cluster=finding.cluster, node=finding.workload)
        if (finding.workload_kind == "Node")
        else None
    )


def _sum(parts: list[Decimal | None]) -> Decimal | None:
    usd_known = [part for part in parts if part is not None]
    return sum(usd_known, Decimal()) if usd_known or not parts else None
