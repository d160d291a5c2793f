"""What would make my workloads faster or smaller, with the lines to write."""

from typing import Any

import streamlit as st

from dashboards import data, doing, page, whose
from dashboards.figures import mine
from dashboards.page import Asked, hours, money, plain

TITLE, ICON, ORDER = "Hints", ":material/lightbulb:", 30

HINTS = {
    "workload": page.name("workload", "large"),
    "verb": page.name("what to do", "large"),
    "usd": page.usd("would save, USD"),
    "gpu_hours": page.number("GPU-hours"),
    "faster": page.name("times as fast", "small"),
    "evidence": page.name("evidence", "small"),
    "effort": page.name("effort", "small"),
    "why": page.name("why", "large"),
}
LINES = {
    "framework": page.name("framework", "small"),
    "format": page.name("format", "small"),
    "line": page.name("line", "large"),
    "source": page.name("where it is described"),
}


def show(asked: Asked) -> None:
    """Draw the page."""
    page.card(hints, asked)


def hints(asked: Asked) -> None:
    """List the hints, and the lines of the one that is chosen."""
    owners = whose.owners(asked)
    if not owners:
        return
    found = data.ask(mine.hints, asked.window, asked.filters, owners)
    if not found:
        page.none(
            asked,
            mine.HINTS,
            "No hint for these workloads in this window.",
            "Formats, sizes, input and scaling were looked at as far as telemetry tells of them.",
        )
        return
    usd = [row["usd"] for row in found if row["usd"] is not None]
    quick = [row for row in found if row["effort"] == "quick win"]
    page.metrics(
        ("Hints", f"{len(found):,}", f"{len(quick):,} quick wins"),
        ("Would save", money(sum(usd) if usd else None), "in this window"),
        ("GPU-hours", hours(sum(row["gpu_hours"] for row in found)), "no hour twice"),
    )
    rows = [_row(row, n) for n, row in enumerate(found)]
    chosen = doing.choose(
        rows,
        HINTS,
        key="hint",
        label="Hint",
        called="Hints, what saves most first",
        named=lambda row: f"{row['workload']}: {row['verb']}",
    )
    if chosen is None:
        return
    whole = found[chosen["number"]]
    st.markdown(f"**{plain(whole['verb'], 120)}**: {plain(whole['why'], 600)}")
    if whole["caution"]:
        page.note(f"Caution: {plain(whole['caution'], 600)}")
    if whole["lines"]:
        page.table(whole["lines"], LINES, called="Lines to write, by framework")
        page.note("Nothing was changed. Sign the accuracy off yourself.")


def _row(row: dict[str, Any], number: int) -> dict[str, Any]:
    ranges = row["details"].get("ranges") or ()
    first = ranges[0].get("times_as_fast") if ranges and isinstance(ranges[0], dict) else None
    made = {n: value for n, value in row.items() if n not in ("details", "lines")}
    return made | {
        "id": f"{row['id']}-{number}",
        "number": number,
        "faster": f"{first[0]:.2g} to {first[1]:.2g}" if first else None,
    }
