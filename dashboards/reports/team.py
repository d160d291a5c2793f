"""Build a team's report: its statement, its idle part, its workloads, and what to do."""

from typing import Any

from dashboards.figures import chargeback, inbox
from dashboards.reports import (
    amounts,
    common_sections,
    first_page,
    report_figures,
    report_request,
    summary,
)
from dashboards.reports.amounts import format_hours, format_usd, write_usd
from dashboards.reports.columns import read_columns
from dashboards.reports.document import (
    HeadlineFigure,
    ReportDocument,
    ReportSection,
    Statement,
    TextBlock,
)
from dashboards.reports.report_request import ReportRequest, build_table
from dashboards.text import count, format_share

STATEMENT = read_columns("statement")
WORKLOADS = read_columns("workloads")


def document(request: ReportRequest) -> ReportDocument:
    """Return the report of the team in the filters."""
    views, window, filters = request.views, request.window, request.filters
    team = str(filters.team)
    bill = next(
        row
        for row in chargeback.read_statement(views, window, filters).to_pylist()
        if row["team"] == team
    )
    workloads = chargeback.read_workloads(views, window, filters, team)
    figures = report_figures.read_report_figures(request)
    waterfall_total, stages = figures.waterfall_total, figures.stages
    advice = inbox.order_by_dollars(figures.advice)
    return report_figures.build_report(
        request,
        figures,
        title="GPU statement",
        audience="team",
        subject=team,
        headline=(
            HeadlineFigure(
                "Fully loaded",
                format_usd(bill["total_usd"]),
                "own GPUs, nodes, a share of the free",
            ),
            HeadlineFigure(
                "GPU only", format_usd(bill["total_usd_gpu"]), "own GPUs, a share of the free"
            ),
            HeadlineFigure(
                "Held", format_hours(bill["gpu_hours"]), count(workloads.num_rows, "workload")
            ),
            HeadlineFigure(
                "Used GPU-hours",
                format_hours(bill["used_gpu_hours"]),
                f"{format_share(bill['used_gpu_hours'], bill['gpu_hours'])} of those held; "
                f"{summary.format_effective(figures.paid)}",
                "good",
            ),
            HeadlineFigure(
                "Idle",
                format_usd(bill["idle_usd"]),
                f"{format_share(bill['idle_usd'], bill['usd_loaded'])} of its own dollars; "
                f"{format_hours(bill['idle_gpu_hours'])}",
                "waste",
            ),
            HeadlineFigure(
                "Could be saved",
                format_usd(stages.saveable_usd),
                first_page.describe_savings(stages),
                "warn",
            ),
        ),
        story=(
            Statement("Pays", _write_pay_sentence(request, bill)),
            Statement("Wasted", summary.write_waste_sentence(figures.paid, waterfall_total)),
            Statement("Most of it", _format_most(workloads.to_pylist())),
            Statement("To do", summary.write_advice_sentence(request, figures.steps, len(advice))),
            Statement("Done", summary.write_done_sentence(stages)),
            Statement("Saved", summary.write_savings_sentence(figures.verified)),
        ),
        daily_text="Per day, by what they did",
        daily_px=170,
        sections=(
            ReportSection(
                "Statement",
                (build_table(request, _build_statement(bill), STATEMENT), _explain_reading()),
            ),
            ReportSection(
                "Workloads",
                (
                    build_table(
                        request,
                        workloads,
                        WORKLOADS,
                        total=(
                            "gpu_hours",
                            "used_gpu_hours",
                            "idle_gpu_hours",
                            "usd_gpu",
                            "usd_loaded",
                        ),
                    ),
                ),
            ),
            common_sections.build_waterfall_section(request, waterfall_total, stages, figures.paid),
            ReportSection(
                "What to do",
                (
                    *common_sections.build_advice(
                        request, advice, figures.paid.clusters, stages.saveable_usd
                    ),
                    _write_absence(),
                ),
            ),
            common_sections.build_saving(request, stages, figures.verified),
        ),
    )


def _write_pay_sentence(request: ReportRequest, bill: dict[str, Any]) -> str:
    return (
        f"{report_request.format_window(request.window)}: {write_usd(bill['total_usd'])} for "
        f"{format_hours(bill['gpu_hours'])}; "
        f"{write_usd(bill['usd_loaded'])} of it for what the team held itself, "
        f"{write_usd(bill['shared_usd'])} its share of what was not allocated."
    )


def _format_most(workloads: list[dict[str, Any]]) -> str:
    sentences = [
        f"{amounts.name(row['workload'], 48)} ({write_usd(row['usd_loaded'])}, "
        f"{format_share(row['idle_gpu_hours'], row['gpu_hours'])} idle)"
        for row in workloads[:3]
    ]
    return f"{summary.join_words(sentences)}." if sentences else "Nothing was held."


def _build_statement(bill: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {"line": "own GPUs", "meaning": "the GPU part of what it held", "usd": bill["usd_gpu"]},
        {
            "line": "their nodes",
            "meaning": "CPU, memory and disk beside them",
            "usd": bill["usd_node"],
        },
        {"line": "own, loaded", "meaning": "the two above", "usd": bill["usd_loaded"]},
        {"line": "of it idle", "meaning": "held, and not used", "usd": bill["idle_usd"]},
        {
            "line": "shared",
            "meaning": "its part of unallocated GPUs",
            "usd": bill["shared_usd"],
        },
        {"line": "fully loaded", "meaning": "own, loaded, and shared", "usd": bill["total_usd"]},
        {
            "line": "GPU only",
            "meaning": "GPU parts, shared too",
            "usd": bill["total_usd_gpu"],
        },
    ]


def _explain_reading() -> TextBlock:
    sentences = (
        "The statements of all teams sum to the bill: what was not allocated is shared by dollars."
    )
    return TextBlock((sentences,), small=True)


def _write_absence() -> TextBlock:
    sentences = (
        "A workload that must stay is kept with the annotation fallow.dev/keep, or with fallow "
        "keep: no policy touches it then. fallow explain says why it was found."
    )
    return TextBlock((sentences,), small=True)
