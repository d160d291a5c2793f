"""The savings ledger: identified, approved, acted, verified; verified is measured."""

from decimal import Decimal

from dashboards import chart_data, charts, data, page
from dashboards.detail_words import describe_kind
from dashboards.figures import savings
from dashboards.page import PageRequest, format_hours, format_money
from dashboards.text import count

VERIFIED = page.read_columns("actions_savings/verified")
CASES = page.read_columns("actions_savings/cases")


def show(request: PageRequest) -> None:
    """Draw the tab."""
    page.show_card(show_stages, request)
    page.show_card(show_verified, request)
    page.show_card(show_cases, request)


def show_stages(request: PageRequest) -> None:
    """Draw how far the findings progressed."""
    stages_reached = data.query(savings.read_stages, request.window, request.filters)
    if not stages_reached.identified:
        page.show_no_findings(
            request,
            (),
            "Nothing was found to save here.",
            "`fallow analyze` or `fallow up` find waste and store it; a window without waste is "
            "also a result.",
        )
        return
    waiting = (
        f"{stages_reached.waiting} wait for approval"
        if stages_reached.waiting
        else f"{stages_reached.approved} cases"
    )
    page.show_metrics(
        (
            "Identified",
            format_money(stages_reached.identified_usd),
            f"{count(stages_reached.identified, 'saving finding')}, acted upon or not"
            + savings.describe_gap(stages_reached),
        ),
        ("Approved", _format_some(stages_reached.approved, stages_reached.approved_usd), waiting),
        (
            "Acted",
            _format_some(stages_reached.acted, stages_reached.acted_usd),
            f"{stages_reached.acted} cases",
        ),
        (
            "Verified",
            _format_some(stages_reached.verified, stages_reached.verified_usd),
            format_hours(stages_reached.verified_gpu_hours),
        ),
    )
    page.chart(
        charts.draw_funnel(chart_data.build_savings_stages(stages_reached)),
        "Dollars identified, approved, acted upon and verified",
    )
    page.note(savings.STAGES_NOTE)


def show_verified(request: PageRequest) -> None:
    """List the measured savings, by kind of dollars."""
    page.show_heading("Verified")
    rows = data.query(savings.read_verified, request.window, request.filters).to_pylist()
    if not rows:
        page.show_nothing(
            "No action was measured yet.",
            "Once a policy acts (`fallow plan`, `fallow apply`), what it saved is measured and "
            "stands here.",
        )
        return
    rows_explained = [{**row, "meaning": savings.KINDS.get(row["kind"], "")} for row in rows]
    page.show_table(rows_explained, VERIFIED, table_name="Verified savings by kind")
    page.note("Only cash lowers the bill: what is released or served is worth its price to others.")


def show_cases(request: PageRequest) -> None:
    """List the requests, approvals and actions."""
    rows = data.query(savings.read_cases, request.window, request.filters)
    if rows.num_rows:
        page.show_heading("Cases")
        cells = [
            {**row, "kind": describe_kind(row["kind"] or "unknown")} for row in rows.to_pylist()
        ]
        page.show_table(cells, CASES, table_name="Cases beyond being identified")


def _format_some(count: int, usd: Decimal | None) -> str:
    return format_money(usd) if count else format_money(Decimal())
