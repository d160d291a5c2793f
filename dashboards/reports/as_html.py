"""Write a document as one HTML file: pictures inside, nothing remote, no script; light and dark."""

from collections.abc import Iterator
from html import escape
from itertools import count
from string import Template

from dashboards.reports import amounts, svg_charts
from dashboards.reports.document import (
    ACTIONS_TITLE,
    Block,
    HeadlineFigure,
    ReportChart,
    ReportColumn,
    ReportDocument,
    ReportTable,
    TextBlock,
)
from dashboards.reports.report_request import format_window
from fallow.resources import read_text

FONT = "system-ui"
WIDTH = 680
"""Width of a picture in pixels; a page scales it."""


def write(document: ReportDocument) -> bytes:
    """Return the document as a file that opens anywhere and loads nothing from a network."""
    numbers = count(1)
    first = "".join(_block(block, numbers) for block in document.first)
    sections = "".join(
        f"<section><h2>{escape(section.title)}</h2>"
        f"{''.join(_block(block, numbers) for block in section.blocks)}</section>"
        for section in document.sections
    )
    warned = "".join(f"<li>{_render_sentence(line)}</li>" for line in document.warnings)
    page = Template(_read("page.html")).substitute(
        title=escape(document.title),
        style=_read("page.css"),
        subject=_render_sentence(amounts.name(document.subject)),
        window=escape(format_window(document.window)),
        made_at=f"{document.made_at:%d %b %Y %H:%M} UTC",
        warnings=f'<ul class="warned">{warned}</ul>' if warned else "",
        verdict=f'<p class="verdict">{_render_sentence(document.verdict)}</p>'
        if document.verdict
        else "",
        figures="".join(map(_render_figure, document.figures)),
        actions=_render_actions(document.actions),
        story="".join(
            f"<dt>{escape(statement.about)}</dt><dd>{_render_sentence(statement.text)}</dd>"
            for statement in document.story
        ),
        first=first,
        sections=sections,
    )
    return page.encode()


def _read(name: str) -> str:
    return read_text("dashboards.reports", name)


def _render_sentence(text: str) -> str:
    return amounts.NAMED.sub(r"<bdi>\1</bdi>", escape(text))


def _render_actions(actions: ReportTable | None) -> str:
    return f"<h2>{ACTIONS_TITLE}</h2>{_render_table(actions)}" if actions else ""


def _render_figure(figure: HeadlineFigure) -> str:
    changed = f"<small>{escape(figure.change)}</small>" if figure.change else ""
    return (
        f'<div class="figure {figure.tone}"><span>{escape(figure.label)}</span>'
        f"<b>{escape(figure.value)}</b><small>{_render_sentence(figure.about)}</small>{changed}</div>"
    )


def _block(block: Block, numbers: Iterator[int]) -> str:
    match block:
        case TextBlock(lines, points, small):
            kind = ' class="small"' if small else ""
            if points:
                return f"<ul{kind}>{''.join(f'<li>{_render_sentence(x)}</li>' for x in lines)}</ul>"
            return "".join(f"<p{kind}>{_render_sentence(line)}</p>" for line in lines)
        case ReportChart(chart, alt):
            drawing = svg_charts.render_svg(chart, WIDTH, FONT)
            inside = svg_charts.inline(drawing, next(numbers), alt)
            return f"<figure>{inside}<figcaption>{escape(alt)}</figcaption></figure>"
        case ReportTable():
            return _render_table(block)


def _render_table(table: ReportTable) -> str:
    if not table.rows:
        return '<p class="small">nothing</p>'
    head = "".join(f"<th{_align(c)}>{escape(c.label)}</th>" for c in table.columns)
    body = "".join(
        f"<tr>{''.join(_render_cell(c, row.get(c.name)) for c in table.columns)}</tr>"
        for row in table.rows
    )
    foot = ""
    if table.total:
        cells = (
            _render_cell(c, table.total[c.name]) if c.name in table.total else "<td></td>"
            for c in table.columns
        )
        foot = f"<tfoot><tr>{''.join(cells)}</tr></tfoot>"
    more = f'<p class="small">and {table.left_out:,} more</p>' if table.left_out else ""
    return (
        f'<div class="table"><table><thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody>{foot}</table></div>{more}"
    )


def _render_cell(column: ReportColumn, value: object) -> str:
    text = escape(amounts.format_cell(value, column))
    cell_text = f"<bdi>{text}</bdi>" if column.kind == "text" else text
    return f"<td{_align(column)}>{cell_text}</td>"


def _align(column: ReportColumn) -> str:
    return "" if column.kind == "text" else f' class="n {column.kind}"'
