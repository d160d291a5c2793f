"""Build sections that several audiences share: states, advice, savings, notes."""

from decimal import Decimal

from dashboards import chart_data, charts
from dashboards.figures import savings, spend, waterfall
from dashboards.reports import summary
from dashboards.reports.columns import read_columns
from dashboards.reports.document import (
    Block,
    ReportChart,
    ReportSection,
    TextBlock,
)
from dashboards.reports.report_request import ReportRequest, add_cluster, build_table

STATES = read_columns("states")
ADVICE = read_columns("advice")
STAGES = read_columns("stages")
VERIFIED = read_columns("verified")
CASES = read_columns("cases")


def build_waterfall_section(
    request: ReportRequest,
    waterfall_total: waterfall.GpuHourWaterfall,
    stages: savings.Stages,
    paid: spend.SpendTotals,
) -> ReportSection:
    """Return the stages of the paid hours, state by state, and how the figures relate."""
    rows = [
        {
            "state": s.state,
            "meaning": s.meaning,
            "gpu_hours": s.gpu_hours,
            "share": 100 * s.gpu_hours / waterfall_total.gpu_hours,
            "usd": paid.state_usd.get(s.state),
        }
        for s in waterfall_total.steps
    ]
    return ReportSection(
        "What was paid, and what the GPUs did",
        (
            ReportChart(
                charts.draw_waterfall(
                    chart_data.build_waterfall_bars(waterfall_total), "GPU-hours", height=220
                ),
                "From paid to working GPU-hours",
            ),
            build_table(
                request,
                rows,
                STATES,
                total=("gpu_hours", "usd"),
                bills={"usd": paid.usd},
            ),
            TextBlock(
                (
                    summary.use_sentence(paid),
                    *summary.write_reconciliation(request, waterfall_total, paid, stages),
                ),
                points=True,
                small=True,
            ),
        ),
    )


def build_advice(
    request: ReportRequest, rows: list[dict[str, object]], clusters: int, usd: Decimal | None
) -> tuple[Block, ...]:
    """Return the advice, a row per workload of so many clusters, the largest saving first.

    `usd`: what all of it could save.
    """
    if not rows:
        return (
            TextBlock(("No finding touches this window: fallow analyze or fallow up find waste.",)),
        )
    return (
        build_table(
            request,
            rows,
            add_cluster(ADVICE, clusters),
            total=("gpu_hours", "usd"),
            bills={"usd": usd},
        ),
        TextBlock(
            ("No GPU-hour is saved twice: each line saves this much on top of those above it.",),
            small=True,
        ),
    )


def build_saving(
    request: ReportRequest, stages: savings.Stages, verified: list[dict[str, object]]
) -> ReportSection:
    """Return how far findings progressed, and the measured savings."""
    rows = [
        {
            "stage": stage,
            "cases": getattr(stages, stage),
            "gpu_hours": getattr(stages, f"{stage}_gpu_hours"),
            "usd": getattr(stages, f"{stage}_usd"),
        }
        for stage in ("identified", "approved", "acted", "verified")
    ]
    blocks: list[Block] = [build_table(request, rows, STAGES)]
    if stages.identified_usd:
        picture = charts.draw_funnel(chart_data.build_savings_stages(stages))
        blocks.insert(
            0, ReportChart(picture, "Dollars identified, approved, acted upon and verified")
        )
    if verified:
        rows_explained = [
            {**row, "meaning": savings.KINDS.get(str(row["kind"]), "")} for row in verified
        ]
        blocks.append(build_table(request, rows_explained, VERIFIED))
    blocks.append(TextBlock((savings.STAGES_NOTE,), small=True))
    cases = savings.read_cases(request.views, request.window, request.filters)
    if cases.num_rows:
        blocks.append(build_table(request, cases, CASES))
    return ReportSection("What was done, and what it saved", tuple(blocks))


def build_notes(paid: spend.SpendTotals) -> ReportSection:
    """Return how to read the numbers."""
    priced = f"{paid.price_as_of:%Y-%m-%d}" if paid.price_as_of else "no date is known"
    return ReportSection(
        "How to read this",
        (
            TextBlock(
                (
                    (
                        "All dollars are US dollars, fully loaded unless said otherwise: a GPU "
                        f"costs its part of the whole node. The newest price is of {priced}."
                    ),
                    (
                        "Idle: allocated and not used, shown by independent signals. Free: not "
                        "allocated. Stranded: free where nothing fits. Lost: work thrown away. "
                        "Unknown hours count neither as waste nor as work."
                    ),
                    (
                        "What could be saved is part of the bill and never more than it. Cash "
                        "lowers the bill; capacity goes to others; what is committed is paid for "
                        "whatever happens."
                    ),
                    "Every number is on the dashboard's pages too; fallow explain says why.",
                ),
                points=True,
                small=True,
            ),
        ),
    )
