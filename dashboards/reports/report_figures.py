"""Read the figures that every report has, and put its own parts between the common ones."""

from typing import Any

import msgspec

from dashboards import charts
from dashboards.figures import savings, spend, waterfall
from dashboards.reports import common_sections, first_page, report_request
from dashboards.reports.document import (
    HeadlineFigure,
    ReportChart,
    ReportDocument,
    ReportSection,
    Statement,
)
from dashboards.reports.report_request import ReportRequest


class ReportFigures(msgspec.Struct, frozen=True):
    """What was paid, wasted, advised, done and saved in a report's window, and the period before.

    `advice`: a row per workload that would save something, in the order of the page Findings.
    """

    waterfall_total: waterfall.GpuHourWaterfall
    paid: spend.SpendTotals
    before: first_page.PeriodBefore
    stages: savings.Stages
    verified: list[dict[str, Any]]
    advice: list[dict[str, Any]]
    steps: list[dict[str, Any]]
    """The steps that save most, as on Overview."""


def read_report_figures(request: ReportRequest) -> ReportFigures:
    """Return the figures of a request's window and filters; its pages have the same."""
    views, window, filters = request.views, request.window, request.filters
    return ReportFigures(
        waterfall_total=waterfall.compute_waterfall(views, window, filters),
        paid=spend.read_totals(views, window, filters),
        before=first_page.read_before(request),
        stages=savings.read_stages(views, window, filters),
        verified=savings.read_verified(views, window, filters).to_pylist(),
        advice=first_page.list_workloads(request),
        steps=first_page.list_steps(request),
    )


def build_report(
    request: ReportRequest,
    figures: ReportFigures,
    *,
    title: str,
    audience: str,
    subject: str,
    headline: tuple[HeadlineFigure, ...],
    story: tuple[Statement, ...],
    daily_text: str,
    daily_px: int,
    sections: tuple[ReportSection, ...],
) -> ReportDocument:
    """Return a report: its own headline, story and sections, and the parts that all have.

    `daily_text` and `daily_px`: the words and the height of the chart of days on the first page.
    """
    daily = spend.read_daily(request.views, request.window, request.filters)
    unit = "usd" if figures.waterfall_total.usd is not None else "gpu_hours"
    chart = charts.draw_states_over_time(daily, unit, height=daily_px)
    return ReportDocument(
        title=title,
        audience=audience,
        window=request.window,
        made_at=request.now,
        subject=subject,
        figures=headline,
        story=story,
        warnings=report_request.list_warnings(request, figures.paid),
        verdict=first_page.write_verdict(
            request, figures.paid, figures.stages, figures.before, figures.advice
        ),
        actions=first_page.list_actions(figures.steps, len(figures.advice), figures.paid.clusters),
        first=(ReportChart(chart, daily_text),),
        sections=(*sections, common_sections.build_notes(figures.paid)),
    )


def name_subject(request: ReportRequest) -> str:
    """Return what a report of the fleet is about: the filters, or every cluster."""
    return ", ".join(request.filters.named.values()) or "every cluster"
