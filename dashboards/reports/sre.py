"""Build the SRE's report: findings by dollars over disruption, fleet, actions, data quality."""

from decimal import Decimal
from typing import Any

from dashboards.figures import data_health, fleet, health, spend, waterfall
from dashboards.reports import (
    amounts,
    common_sections,
    first_page,
    report_figures,
    report_request,
    summary,
)
from dashboards.reports.amounts import format_usd
from dashboards.reports.columns import read_columns
from dashboards.reports.document import (
    Block,
    HeadlineFigure,
    ReportDocument,
    ReportSection,
    ReportTable,
    Statement,
    TextBlock,
)
from dashboards.reports.report_request import ReportRequest, build_table
from dashboards.text import NO_PRICE, count, format_missing, format_share

NOW = read_columns("now")
HOLDERS = read_columns("holders")
NODES = read_columns("nodes")
SAVINGS = read_columns("savings")
INBOX = read_columns("inbox")
SAVES = ("gpu_hours", "usd")
INCIDENTS = read_columns("incidents")
COLLECTORS = read_columns("collectors")


def document(request: ReportRequest) -> ReportDocument:
    """Return the report; its numbers are those of the SRE's pages."""
    views, window, filters = request.views, request.window, request.filters
    now = fleet.read_states(views, window.end, filters)
    figures = report_figures.read_report_figures(request)
    waterfall_total, paid, stages = figures.waterfall_total, figures.paid, figures.stages
    looking = data_health.read_collector_health(views, window.end, filters.cluster)
    state = {rate.state: rate for rate in now}
    up = sum(1 for collector in looking if not collector.down)
    inbox_columns = report_request.add_cluster(INBOX, figures.paid.clusters)
    known_share = 1 - paid.unknown_gpu_hours / paid.gpu_hours if paid.gpu_hours else 0.0
    return report_figures.build_report(
        request,
        figures,
        title="GPU fleet",
        audience="sre",
        subject=report_figures.name_subject(request),
        headline=(
            HeadlineFigure(
                "Working now",
                format_share(_count_gpus(state, "productive", "low"), sum(p.gpus for p in now)),
                f"{_count_gpus(state, 'productive', 'low'):,.1f} of "
                f"{sum(p.gpus for p in now):,.0f} GPUs",
                "good",
            ),
            HeadlineFigure(
                "Idle now",
                _format_pace(state, "idle"),
                _format_some(state, "idle"),
                "waste",
            ),
            HeadlineFigure("Free now", _format_pace(state, "free"), _format_some(state, "free")),
            HeadlineFigure(
                "Could be saved",
                format_usd(stages.saveable_usd),
                first_page.describe_savings(stages),
                "warn",
            ),
            HeadlineFigure(
                "Waiting for approval", f"{stages.waiting:,}", f"{stages.acted:,} acted upon"
            ),
            HeadlineFigure(
                "Known",
                f"{known_share:.1%}",
                f"of the GPU-hours; {up} of {count(len(looking), 'collector')} answer",
                "good" if up == len(looking) else "waste",
            ),
        ),
        story=(
            Statement("Now", _format_now(state)),
            Statement(
                "Wasted",
                summary.write_waste_sentence(paid, waterfall_total),
            ),
            Statement(
                "To do", summary.write_advice_sentence(request, figures.steps, len(figures.advice))
            ),
            Statement("Done", summary.write_done_sentence(stages)),
            Statement("Saved", summary.write_savings_sentence(figures.verified)),
            Statement("Data", _write_data_sentence(looking, paid)),
        ),
        daily_text="Per day, by what the GPUs did",
        daily_px=170,
        sections=(
            ReportSection(
                "Findings by dollars over disruption",
                (
                    build_table(
                        request,
                        figures.advice,
                        inbox_columns,
                        total=SAVES,
                        bills={"usd": stages.saveable_usd},
                    ),
                    _explain_reading(),
                ),
            ),
            _build_fleet(request, now),
            common_sections.build_waterfall_section(request, waterfall_total, stages, paid),
            *_build_findings_section(request, waterfall_total, stages.saveable_usd),
            *_build_incidents(request),
            common_sections.build_saving(request, stages, figures.verified),
            _build_quality(request, looking),
        ),
    )


def _count_gpus(state: dict[str, fleet.StateRate], *names: str) -> float:
    return sum(state[name].gpus for name in names if name in state)


def _format_pace(state: dict[str, fleet.StateRate], name: str) -> str:
    usd_h = state[name].usd_h if name in state else Decimal()
    return format_missing(NO_PRICE) if usd_h is None else f"{format_usd(usd_h)} an hour"


def _format_some(state: dict[str, fleet.StateRate], name: str) -> str:
    return f"{_count_gpus(state, name):,.1f} GPUs"


def _format_now(state: dict[str, fleet.StateRate]) -> str:
    state_texts = [
        f"{rate.gpus:,.1f} GPUs {summary.WORDS.get(rate.state, rate.state)} "
        f"({format_missing(NO_PRICE) if rate.usd_h is None else f'{format_usd(rate.usd_h)}/h'})"
        for rate in state.values()
        if rate.gpus
    ]
    return (
        f"In the last accounted hour {summary.join_words(state_texts)}."
        if state_texts
        else "Nothing is known."
    )


def _write_data_sentence(
    looking: tuple[data_health.CollectorHealth, ...], paid: spend.SpendTotals
) -> str:
    down = [amounts.name(collector.collector) for collector in looking if collector.down]
    collector_sentence = (
        f"{summary.join_words(down)} did not answer." if down else "Every collector answers."
    )
    return (
        f"{collector_sentence} {format_share(paid.unknown_gpu_hours, paid.gpu_hours)} of the "
        "GPU-hours "
        "are unknown."
    )


def _explain_reading() -> TextBlock:
    sentences = (
        "Disruption: one, and one more for each time that an owner took back what was done to the "
        "workload. No GPU-hour is saved twice."
    )
    return TextBlock((sentences,), small=True)


def _build_fleet(request: ReportRequest, now: tuple[fleet.StateRate, ...]) -> ReportSection:
    rows: list[dict[str, Any]] = [{n: getattr(p, n) for n in p.__struct_fields__} for p in now]
    until, filters = request.window.end, request.filters
    blocks: list[Block] = [build_table(request, rows, NOW, total=("gpus", "usd_h"))]
    for figure, columns in ((fleet.read_holders, HOLDERS), (fleet.read_nodes, NODES)):
        figure_rows = figure(request.views, until, filters)
        if figure_rows.num_rows:
            blocks.append(build_table(request, figure_rows, columns, most=15))
    return ReportSection("The fleet in the last accounted hour", tuple(blocks))


def _build_findings_section(
    request: ReportRequest, waterfall_total: waterfall.GpuHourWaterfall, usd: Decimal | None
) -> tuple[ReportSection, ...]:
    if not waterfall_total.savings:
        return ()
    rows = [{n: getattr(s, n) for n in s.__struct_fields__} for s in waterfall_total.savings]
    return (
        ReportSection(
            "Who found what",
            (build_table(request, rows, SAVINGS, total=("gpu_hours", "usd"), bills={"usd": usd}),),
        ),
    )


def _build_incidents(request: ReportRequest) -> tuple[ReportSection, ...]:
    """Return the incidents by cause; nothing where none is stored."""
    rows = health.read_incident_causes(request.views, request.window, request.filters)
    if not rows.num_rows:
        return ()
    table = build_table(request, rows, INCIDENTS, total=("incidents",))
    return (ReportSection("Incidents by cause", (table,)),)


def _build_quality(
    request: ReportRequest, looking: tuple[data_health.CollectorHealth, ...]
) -> ReportSection:
    rows = [
        {n: getattr(collector, n) for n in collector.__struct_fields__} for collector in looking
    ]
    blocks: list[ReportTable | TextBlock] = [
        build_table(request, rows, COLLECTORS)
        if rows
        else TextBlock(("No collector ran in the day before the window's end.",))
    ]
    failed = data_health.read_audits(request.views, request.window)
    blocks.append(TextBlock((failed or "Every audit of the ledger holds in this window.",)))
    return ReportSection("Data quality", tuple(blocks))
