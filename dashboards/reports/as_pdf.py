"""A document as PDF: typeset by typst, its fonts inside, no system library needed."""

import json
from importlib.resources import files
from typing import Any

from dashboards.reports import amounts, pictures
from dashboards.reports.asked import spoken
from dashboards.reports.document import Block, Document, Picture, Table, Text
from fallow.errors import UsageError

FONT = "Libertinus Serif"
"""Comes with typst."""
WIDTH = 620


def write(document: Document) -> bytes:
    """Return the document as PDF; the same document gives the same bytes.

    Raises:
        UsageError: what typesets it is not installed.
    """
    try:
        import typst  # noqa: PLC0415  (24 MB that no other command needs)
    except ImportError as error:
        raise UsageError("PDF needs what typesets it", hint=pictures.HOW) from error
    drawn: dict[str, bytes] = {}
    body: dict[str, Any] = {
        "title": document.title,
        "about": f"{amounts.cut(document.whose, 80)}  ·  {spoken(document.window)}  ·  US dollars",
        "made_at": f"made {document.made_at:%d %b %Y %H:%M} UTC",
        "warnings": [amounts.bare(line) for line in document.warnings],
        "figures": [
            {"label": f.label, "value": f.value, "about": amounts.bare(f.about), "tone": f.tone}
            for f in document.figures
        ],
        "story": [{"about": s.about, "text": amounts.bare(s.text)} for s in document.story],
        "first": [_block(block, drawn) for block in document.first],
        "sections": [
            {"title": s.title, "blocks": [_block(block, drawn) for block in s.blocks]}
            for s in document.sections
        ],
    }
    page = files("dashboards.reports").joinpath("page.typ").read_bytes()
    sources: Any = {"main": page, "document.json": json.dumps(body).encode(), **drawn}
    made = typst.compile(sources, format="pdf", timestamp=int(document.made_at.timestamp()))
    if not isinstance(made, bytes):
        raise TypeError("one PDF is one run of bytes")
    return made


def _block(block: Block, drawn: dict[str, bytes]) -> dict[str, Any]:
    match block:
        case Text(lines, points, small):
            said = [amounts.bare(line) for line in lines]
            return {"kind": "text", "lines": said, "points": points, "small": small}
        case Picture(chart, alt):
            name = f"picture-{len(drawn)}.svg"
            drawn[name] = pictures.printed(pictures.svg(chart, WIDTH, FONT))
            return {"kind": "picture", "file": name, "alt": alt}
        case Table():
            return _table(block)


def _table(table: Table) -> dict[str, Any]:
    def cells(row: Any) -> list[str]:
        return [
            amounts.written(row[c.name], c.kind) if c.name in row else "" for c in table.columns
        ]

    return {
        "kind": "table",
        "heads": [c.label for c in table.columns],
        "right": [c.kind != "text" for c in table.columns],
        "wide": [c.kind == "text" for c in table.columns],
        "rows": [cells(row) for row in table.rows],
        "total": cells(table.total) if table.total else [],
        "left_out": table.left_out,
    }
