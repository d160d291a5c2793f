"""Reserved capacity: how much of it is used, what it covers, when it ends, whether it pays."""

from dashboards import data, page
from dashboards.figures import commitments
from dashboards.page import PageRequest, format_money, format_share

COLUMNS = page.read_columns("spend_commitments/columns")


def show(request: PageRequest) -> None:
    """Draw the tab."""
    page.show_card(show_commitments_table, request)


def show_commitments_table(request: PageRequest) -> None:
    """List every commitment that runs in the window or later."""
    promised = tuple(request.settings.prices.commitments)
    uses = data.query(commitments.read_commitments, request.window, promised)
    if not uses and promised:
        page.show_nothing("Every commitment ended before this window.", "Choose an earlier window.")
        return
    if not uses:
        page.show_nothing(
            "No commitment is configured.",
            "Name reserved capacity under `prices.commitments`: name, provider, instance_type, "
            "nodes, gpus_per_node, usd_per_node_hour, start, end.",
        )
        return
    totals = commitments.sum_commitments(uses)
    page.show_metrics(
        (
            "Committed",
            format_money(totals.committed_usd),
            f"{totals.committed_node_hours:,.0f} node-hours",
        ),
        (
            "Utilisation",
            format_share(totals.utilisation, 1),
            f"{totals.running_node_hours:,.0f} node-hours ran",
        ),
        (
            "Did not run",
            format_money(totals.unused_usd),
            f"{format_money(totals.unknown_usd)} unknown"
            if totals.unknown_usd
            else format_share(totals.unused_usd, totals.committed_usd),
        ),
        ("End within 60 days", str(totals.ending), f"of {totals.count}"),
    )
    page.show_table(
        [_build_row(commitment) for commitment in uses], COLUMNS, table_name="Commitments"
    )
    too_little = [commitment for commitment in uses if _is_too_little(commitment)]
    if too_little:
        page.note(
            f"{len(too_little)} of {len(uses)} run less than their break-even: so little use would "
            "be cheaper on demand."
        )
    page.note(
        "A reclaimed GPU of a commitment saves no cash until demand fills it or the term ends: it "
        "is released capacity. Savings are shown apart as cash, capacity and commitment everywhere."
    )


def _is_too_little(commitment: commitments.CommitmentUse) -> bool:
    has_break_even = commitment.utilisation is not None and commitment.break_even is not None
    return has_break_even and (commitment.utilisation or 0.0) < (commitment.break_even or 0.0)


def _build_row(commitment: commitments.CommitmentUse) -> dict[str, object]:
    row: dict[str, object] = {
        name: getattr(commitment, name) for name in commitment.__struct_fields__
    }
    for name in ("utilisation", "coverage", "break_even"):
        value = getattr(commitment, name)
        row[f"{name}_pct"] = None if value is None else 100 * value
    committed_hours = commitment.committed_node_hours
    row["held_pct"] = (
        100 * commitment.held_node_hours / committed_hours if committed_hours else None
    )
    row["used_pct"] = (
        100 * commitment.used_node_hours / committed_hours if committed_hours else None
    )
    return row
