"""Write a document as PDF: typeset by typst, with its fonts, without system libraries."""

import json
from importlib.resources import files
from typing import Any

from dashboards.reports import amounts, svg_charts
from dashboards.reports.document import (
    ACTIONS_TITLE,
    Block,
    ReportChart,
    ReportDocument,
    ReportTable,
    TextBlock,
)
from dashboards.reports.report_request import format_window
from fallow.errors import UsageError

FONT = "Libertinus Serif"
"""A font that comes with typst."""
WIDTH = 620


def write(document: ReportDocument) -> bytes:
    """Return the document as PDF; the same document gives the same bytes.

    Raises:
        UsageError: the typesetter is not installed.
    """
    try:
        import typst  # noqa: PLC0415  (24 MB that no other command needs)
    except ImportError as error:
        raise UsageError("PDF needs what typesets it", hint=svg_charts.HOW) from error
    drawings: dict[str, bytes] = {}
    body: dict[str, Any] = {
        "title": document.title,
        "about": f"{amounts.cut(document.subject, 80)}  ·  {format_window(document.window)}"
        "  ·  US dollars",
        "made_at": f"made {document.made_at:%d %b %Y %H:%M} UTC",
        "warnings": [amounts.strip_marks(line) for line in document.warnings],
        "verdict": amounts.strip_marks(document.verdict),
        "figures": [
            {
                "label": f.label,
                "value": f.value,
                "about": amounts.strip_marks(f.about),
                "tone": f.tone,
                "change": f.change,
            }
            for f in document.figures
        ],
        "actions_title": ACTIONS_TITLE,
        "actions": [_render_table(document.actions)] if document.actions else [],
        "story": [{"about": s.about, "text": amounts.strip_marks(s.text)} for s in document.story],
        "first": [_block(block, drawings) for block in document.first],
        "sections": [
            {"title": s.title, "blocks": [_block(block, drawings) for block in s.blocks]}
            for s in document.sections
        ],
    }
    page = files("dashboards.reports").joinpath("page.typ").read_bytes()
    sources: Any = {"main": page, "document.json": json.dumps(body).encode(), **drawings}
    pdf = typst.compile(sources, format="pdf", timestamp=int(document.made_at.timestamp()))
    if not isinstance(pdf, bytes):
        raise TypeError("one PDF is one run of bytes")
    return pdf


def _block(block: Block, drawings: dict[str, bytes]) -> dict[str, Any]:
    match block:
        case TextBlock(lines, points, small):
            text_lines = [amounts.strip_marks(line) for line in lines]
            return {"kind": "text", "lines": text_lines, "points": points, "small": small}
        case ReportChart(chart, alt):
            name = f"picture-{len(drawings)}.svg"
            drawings[name] = svg_charts.convert_for_print(svg_charts.render_svg(chart, WIDTH, FONT))
            return {"kind": "picture", "file": name, "alt": alt}
        case ReportTable():
            return _render_table(block)


def _render_table(table: ReportTable) -> dict[str, Any]:
    def cells(row: Any) -> list[str]:
        return [amounts.format_cell(row[c.name], c) if c.name in row else "" for c in table.columns]

    return {
        "kind": "table",
        "heads": [c.label for c in table.columns],
        "right": [c.kind != "text" for c in table.columns],
        "wide": [c.kind == "text" for c in table.columns],
        "rows": [cells(row) for row in table.rows],
        "total": cells(table.total) if table.total else [],
        "left_out": table.left_out,
    }
