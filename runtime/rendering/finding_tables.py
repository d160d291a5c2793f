"""Render findings and stories: progress on a terminal's stderr, the story on stdout."""

import os
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, get_args

import msgspec

from analyzers.ranking import add_amounts, classify_impact
from dashboards import waste_report as page
from dashboards.text import count
from dashboards.waste_report import Story
from fallow import money
from fallow.models import Saving
from runtime.operations.accounting import reconcile
from runtime.operations.analysis.findings import build_blocks
from runtime.operations.analysis.findings import build_row as flat
from runtime.rendering.tables import Rows, document, render, write_text

if TYPE_CHECKING:
    from analyzers.ranking import RankedFinding
    from analyzers.waterfall import SavedAmount, SavingsWaterfall

Progress = Callable[[str, float], None]
"""Receives the current step and the finished part (0-1)."""

CLASSES = {
    "quick win": "quick wins: one setting, undone as fast",
    "advanced": "advanced: a project each",
    "continuous": "continuous: a practice",
    None: "to know: nothing is recommended",
}
TERMINAL_COLUMNS = (
    "id", "impact", "analyzer", "kind", "evidence", "cluster", "namespace", "workload", "team",
    "gpu_hours", "usd", "saves_usd", "at_most_usd", "do",
)  # fmt: skip
"""The columns that fit on a terminal; `-o csv` has every column."""
WIDE = 100
NARROW = 60


@contextmanager
def show_progress() -> Iterator[Progress]:
    """Show one progress bar on stderr if it is a terminal; show nothing elsewhere."""
    if not sys.stderr.isatty():
        yield lambda _label, _part: None
        return
    from rich.console import Console  # noqa: PLC0415  (only people on a terminal pay for it)
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn  # noqa: PLC0415
    from rich.progress import Progress as Bar  # noqa: PLC0415

    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=1.0)
        yield lambda label, part: bar.update(task, description=label, completed=part)


def show_story(story: Story, output: str) -> None:
    """Write a story on stdout: as text, Markdown, JSON, or its states as CSV."""
    write_text(render_story(story, output), coloured=output == "table")


def render_story(story: Story, output: str) -> str:
    """Return a story as text in the requested format."""
    if output == "json":
        body = msgspec.structs.asdict(story)
        return document("story", {**body, "gpu_hours": story.gpu_hours, "usd": story.usd})
    if output == "csv":
        return render([msgspec.structs.asdict(s) for s in story.states], "csv", noun="states")
    if output == "md":
        return page.render_markdown(story)
    terminal = sys.stdout.isatty()
    width = shutil.get_terminal_size((WIDE, 24)).columns if terminal else WIDE
    colour = terminal and not os.environ.get("NO_COLOR")
    return page.render_terminal(story, width=max(NARROW, min(width, 120)), colour=colour)


def render_analysis(
    ranked: "Sequence[RankedFinding]", waterfall: "SavingsWaterfall", output: str, top: int = 0
) -> str:
    """Return findings by effort class, the `top` most expensive of each, and their waterfall."""
    parts: list[tuple[str, Rows]] = []
    several = len({row.finding.subject.cluster for row in ranked}) > 1
    for effort, title in CLASSES.items():
        rows = [_build_finding_row(row, several) for row in ranked if row.effort == effort]
        if rows:
            top_rows = rows[:top] if top else rows
            counted = (
                f"{len(top_rows)} of {len(rows)}" if len(top_rows) < len(rows) else f"{len(rows)}"
            )
            parts.append((f"{title} ({counted})", top_rows))
    parts.insert(0, ("what saves most", [_round_block(row) for row in build_blocks(ranked)]))
    parts.append(("what they save together", build_waterfall_rows(waterfall)))
    lines = reconcile.format_lines(reconcile.compute_reconciliation(waterfall))
    text = render_tables(parts, output, "findings")
    stands = "".join(f"\n{line}" for line in [*_count_findings(ranked), *lines])
    return f"{text}{stands}\n" if stands else text


def _count_findings(ranked: "Sequence[RankedFinding]") -> list[str]:
    """Return how many findings there are, as the page Findings counts them."""
    if not ranked:
        return []
    advised = [row for row in ranked if row.finding.recommendations]
    saving = sum(row.gpu_hours > 0 for row in advised)
    others = f"{len(advised) - saving:,} with advice that saves no hour of its own"
    rest = f"{len(ranked) - len(advised):,} to know"
    return [f"{count(len(ranked), 'finding')}: {saving:,} save, {others}, {rest}."]


def _round_block(block: dict[str, Any]) -> dict[str, Any]:
    usd = block["usd"]
    return {**block, "usd": None if usd is None else money.round_to_cents(usd)}


def build_waterfall_rows(waterfall: "SavingsWaterfall") -> list[dict[str, Any]]:
    """Return the waterfall as lines: the bill, what each analyzer's advice saves, what is left.

    Below stand the bounds of hours in use, which are in no sum.
    """
    bill, whole = waterfall.bill, waterfall.saved()
    lines = [_build_waterfall_row("the bill", "", waterfall, bill, None)]
    seen = dict.fromkeys((s.analyzer, s.saving, s.evidence) for s in waterfall.steps)
    for analyzer, saving, evidence in seen:
        only = {"analyzer": analyzer, "saving": saving, "evidence": evidence}
        count = sum(all(getattr(s, k) == v for k, v in only.items()) for s in waterfall.steps)
        kind = f"{saving}, {evidence}"
        if not waterfall.saved(**only).gpu_hours:
            continue
        lines.append(
            _build_waterfall_row(f"- {analyzer}", kind, waterfall, waterfall.saved(**only), count)
        )
    left = bill.gpu_hours - whole.gpu_hours
    usd = None if bill.usd is None else bill.usd - (whole.usd or 0)
    lines.append(_build_waterfall_row("= left", "", waterfall, type(bill)(left, usd), None))
    if bill.usd is not None:
        lines[0]["usd"] = money.sum_bills(waterfall.list_bills())
        parts = money.apportion([line["usd"] for line in lines[1:]], lines[0]["usd"])
        for line, part in zip(lines[1:], parts, strict=True):
            line["usd"] = part
    for analyzer in dict.fromkeys(s.analyzer for s in waterfall.steps if s.at_most.gpu_hours):
        amount = waterfall.bounded(analyzer=analyzer)
        count = sum(s.analyzer == analyzer and s.at_most.gpu_hours > 0 for s in waterfall.steps)
        line = _build_waterfall_row(
            f"at most: {analyzer}", "hours in use", waterfall, amount, count
        )
        usd = line["usd"]
        lines.append(line | {"usd": None if usd is None else money.round_to_cents(usd)})
    return lines


def build_waterfall_document(waterfall: "SavingsWaterfall") -> dict[str, Any]:
    """Return the waterfall for `fallow.findings/v1`: bill, savings by kind, every step."""
    whole = waterfall.saved()
    if whole.usd is not None:
        bills = [row["usd"] for row in waterfall.by("cluster")]
        whole = msgspec.structs.replace(whole, usd=money.sum_bills(bills) or whole.usd)
    savings = {name: waterfall.saved(saving=name) for name in get_args(Saving)}
    kinds = {name: waterfall.saved(evidence=name) for name in ("confirmed", "suspected")}
    steps = dict(enumerate(step.marginal for step in waterfall.steps))
    marginal = _convert_to_cents(steps, whole)
    return {
        "bill": msgspec.structs.asdict(waterfall.bill)
        | {"usd": money.sum_bills(waterfall.list_bills())},
        "saved": msgspec.structs.asdict(whole),
        "at_most": msgspec.structs.asdict(waterfall.bounded()),
        "by_saving": _convert_to_cents(savings, whole),
        "by_evidence": _convert_to_cents(kinds, whole),
        "steps": [
            {
                **msgspec.structs.asdict(step),
                "marginal": marginal[number],
                "impact": classify_impact(
                    add_amounts([step.marginal, step.at_most]), waterfall.bill
                ),
            }
            for number, step in enumerate(waterfall.steps)
        ],
    }


def _convert_to_cents(
    parts: "Mapping[Any, SavedAmount]", whole: "SavedAmount"
) -> dict[Any, dict[str, Any]]:
    """Return amounts whose dollars, in cents, sum to those of the whole."""
    target = None if whole.usd is None else money.round_to_cents(whole.usd)
    usd = money.apportion([part.usd for part in parts.values()], target)
    return {
        name: {**msgspec.structs.asdict(part), "usd": paid}
        for (name, part), paid in zip(parts.items(), usd, strict=True)
    }


def _build_finding_row(row: "RankedFinding", several: bool) -> dict[str, Any]:
    """Return the row of a terminal, with the cluster where findings are of several."""
    whole = flat(row)
    return {name: whole[name] for name in TERMINAL_COLUMNS if several or name != "cluster"}


def _build_waterfall_row(
    label: str, kind: str, waterfall: "SavingsWaterfall", amount: "SavedAmount", count: int | None
) -> dict[str, Any]:
    bill = waterfall.bill
    if bill.usd and amount.usd is not None:
        share = float(amount.usd / bill.usd)
    else:
        share = amount.gpu_hours / bill.gpu_hours if bill.gpu_hours else 0.0
    return {
        "step": label,
        "saving": kind or None,
        "advice": count,
        "gpu_hours": amount.gpu_hours,
        "usd": amount.usd,
        "pct": 100 * share,
    }


def render_tables(parts: "Sequence[tuple[str, Rows]]", output: str, noun: str = "") -> str:
    """Return tables of a noun under their titles."""
    mark = "## " if output == "md" else ""
    return "\n".join(f"{mark}{title}\n\n{render(rows, output, noun=noun)}" for title, rows in parts)
