"""Write a document as Markdown: for a wiki, a merge request, a chat. Pictures are left out."""

import re

from dashboards.reports import amounts
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
from fallow.texts import escape_markdown

_OURS = re.compile(r"([\\`*_\[\]|<>$])")


def write(document: ReportDocument) -> bytes:
    """Return the document as Markdown; names in it show exactly their characters."""
    lines = [
        f"# {document.title}",
        "",
        (
            f"{_name(document.subject)}, {format_window(document.window)}, US dollars, made "
            f"{document.made_at:%Y-%m-%d %H:%M} UTC"
        ),
        "",
        *(f"> {_render_sentence(line)}\n" for line in document.warnings),
        *([f"**{_render_sentence(document.verdict)}**", ""] if document.verdict else []),
        "| | | |",
        "|---|--:|---|",
        *(
            f"| {f.label} | **{_render_sentence(f.value)}** | {_render_sentence(f.about)} |"
            for f in document.figures
        ),
        "",
        *_render_changes(document.figures),
        *(
            [f"## {ACTIONS_TITLE}", "", *_render_table(document.actions)]
            if document.actions
            else []
        ),
        *(
            f"- **{statement.about}**: {_render_sentence(statement.text)}"
            for statement in document.story
        ),
        "",
    ]
    for section in document.sections:
        lines += [f"## {section.title}", ""]
        for block in section.blocks:
            lines += _block(block)
    return "\n".join(lines).encode()


def _render_changes(figures: tuple[HeadlineFigure, ...]) -> list[str]:
    changes = [f"- {f.label}: {_render_sentence(f.change)}" for f in figures if f.change]
    return ["Against the period before:", "", *changes, ""] if changes else []


def _block(block: Block) -> list[str]:
    match block:
        case ReportChart():
            return []
        case TextBlock(texts, points):
            head, gap = ("- ", []) if points else ("", [""])
            lines = [line for text in texts for line in (head + _render_sentence(text), *gap)]
            return [*lines, ""] if points else lines
        case ReportTable():
            return _render_table(block)


def _render_table(table: ReportTable) -> list[str]:
    if not table.rows:
        return ["nothing", ""]
    rows = [*table.rows, *([table.total] if table.total else [])]
    lines = [
        "| " + " | ".join(c.label for c in table.columns) + " |",
        "|" + "|".join("---" if c.kind == "text" else "--:" for c in table.columns) + "|",
    ]
    lines += [
        "| "
        + " | ".join(
            _render_cell(c, row.get(c.name)) if c.name in row else "" for c in table.columns
        )
        + " |"
        for row in rows
    ]
    return [*lines, "", *([f"and {table.left_out:,} more", ""] if table.left_out else [])]


def _render_cell(column: ReportColumn, value: object) -> str:
    text = amounts.format_cell(value, column)
    return _name(text) if column.kind == "text" else text.replace("$", "\\$")


def _name(text: str) -> str:
    return escape_markdown(amounts.cut(text, 90))


def _render_sentence(text: str) -> str:
    parts = amounts.NAMED.split(text)
    return "".join(
        _name(part) if odd % 2 else _OURS.sub(r"\\\1", part) for odd, part in enumerate(parts)
    )
