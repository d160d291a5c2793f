"""How work and stories are shown: progress on a terminal's stderr, the story on stdout."""

import os
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, get_args

import msgspec

from dashboards import story as page
from dashboards.story import Story
from fallow import money
from runtime.output import Rows, document, render, say

if TYPE_CHECKING:
    from analyzers.ranking import Ranked
    from analyzers.waterfall import Amount, Waterfall

Progress = Callable[[str, float], None]
"""Say what is being done and which part (0-1) of it is."""

CLASSES = {
    "quick win": "quick wins: one setting, undone as fast",
    "advanced": "advanced: a project each",
    "continuous": "continuous: a practice",
    None: "to know: nothing is recommended",
}
LINE = (
    "id", "impact", "analyzer", "kind", "evidence", "namespace", "workload", "team",
    "gpu_hours", "usd", "saves_usd", "do",
)  # fmt: skip
"""What a terminal has room for; `-o csv` has every column."""
WIDE = 100
NARROW = 60


@contextmanager
def watching() -> Iterator[Progress]:
    """Show one progress bar on stderr where it is a terminal; say nothing elsewhere."""
    if not sys.stderr.isatty():
        yield lambda _what, _part: None
        return
    from rich.console import Console  # noqa: PLC0415  (only people on a terminal pay for it)
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn  # noqa: PLC0415
    from rich.progress import Progress as Bar  # noqa: PLC0415

    shown = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Bar(*shown, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=1.0)
        yield lambda what, part: bar.update(task, description=what, completed=part)


def show_story(story: Story, output: str) -> None:
    """Write a story on stdout: for eyes, Markdown, JSON, or its states as CSV."""
    say(told(story, output))


def told(story: Story, output: str) -> str:
    """Return a story as text in the asked shape."""
    if output == "json":
        body = msgspec.structs.asdict(story)
        return document("story", {**body, "gpu_hours": story.gpu_hours, "usd": story.usd})
    if output == "csv":
        return render([msgspec.structs.asdict(s) for s in story.states], "csv", noun="states")
    if output == "md":
        return page.markdown(story)
    terminal = sys.stdout.isatty()
    width = shutil.get_terminal_size((WIDE, 24)).columns if terminal else WIDE
    colour = terminal and not os.environ.get("NO_COLOR")
    return page.terminal(story, width=max(NARROW, min(width, 120)), colour=colour)


def analysis(shown: "Sequence[Ranked]", waterfall: "Waterfall", output: str, top: int = 0) -> str:
    """Return findings by effort class, the `top` dearest of each, and the waterfall they make."""
    parts: list[tuple[str, Rows]] = []
    for effort, title in CLASSES.items():
        rows = [_line(row) for row in shown if row.effort == effort]
        if rows:
            kept = rows[:top] if top else rows
            counted = f"{len(kept)} of {len(rows)}" if len(kept) < len(rows) else f"{len(rows)}"
            parts.append((f"{title} ({counted})", kept))
    parts.append(("what they save together", stages(waterfall)))
    if not shown:
        return "nothing\n" + titled(parts[-1:], output)
    return titled(parts, output)


def stages(waterfall: "Waterfall") -> list[dict[str, Any]]:
    """Return the waterfall as lines: the bill, what each analyzer's advice saves, what is left."""
    bill, whole = waterfall.bill, waterfall.saved()
    lines = [_stage("the bill", "", waterfall, bill, len(waterfall.steps))]
    seen = dict.fromkeys((s.analyzer, s.saving, s.evidence) for s in waterfall.steps)
    for analyzer, saving, evidence in seen:
        only = {"analyzer": analyzer, "saving": saving, "evidence": evidence}
        count = sum(all(getattr(s, k) == v for k, v in only.items()) for s in waterfall.steps)
        kind = f"{saving}, {evidence}"
        lines.append(_stage(f"- {analyzer}", kind, waterfall, waterfall.saved(**only), count))
    left = bill.gpu_hours - whole.gpu_hours
    usd = None if bill.usd is None else bill.usd - (whole.usd or 0)
    lines.append(_stage("= left", "", waterfall, type(bill)(left, usd), None))
    if bill.usd is not None:
        lines[0]["usd"] = money.cents(bill.usd)
        parts = money.apportion([line["usd"] for line in lines[1:]], lines[0]["usd"])
        for line, part in zip(lines[1:], parts, strict=True):
            line["usd"] = part
    return lines


def waterfall_document(waterfall: "Waterfall") -> dict[str, Any]:
    """Return the waterfall for `fallow.findings/v1`: bill, savings by kind, every step."""
    from analyzers.ranking import impact  # noqa: PLC0415
    from fallow.nouns import Saving  # noqa: PLC0415

    whole = waterfall.saved()
    savings = {name: waterfall.saved(saving=name) for name in get_args(Saving)}
    kinds = {name: waterfall.saved(evidence=name) for name in ("confirmed", "suspected")}
    steps = dict(enumerate(step.marginal for step in waterfall.steps))
    marginal = _in_cents(steps, whole)
    return {
        "bill": msgspec.structs.asdict(waterfall.bill),
        "saved": msgspec.structs.asdict(whole),
        "by_saving": _in_cents(savings, whole),
        "by_evidence": _in_cents(kinds, whole),
        "steps": [
            {
                **msgspec.structs.asdict(step),
                "marginal": marginal[number],
                "impact": impact(step.marginal, waterfall.bill),
            }
            for number, step in enumerate(waterfall.steps)
        ],
    }


def _in_cents(parts: "Mapping[Any, Amount]", whole: "Amount") -> dict[Any, dict[str, Any]]:
    """Return amounts whose dollars, in cents, sum to those of the whole."""
    target = None if whole.usd is None else money.cents(whole.usd)
    usd = money.apportion([part.usd for part in parts.values()], target)
    return {
        name: {**msgspec.structs.asdict(part), "usd": paid}
        for (name, part), paid in zip(parts.items(), usd, strict=True)
    }


def _line(row: "Ranked") -> dict[str, Any]:
    from runtime.findings import row as flat  # noqa: PLC0415

    whole = flat(row)
    return {name: whole[name] for name in LINE}


def _stage(
    what: str, kind: str, waterfall: "Waterfall", amount: "Amount", count: int | None
) -> dict[str, Any]:
    bill = waterfall.bill
    if bill.usd and amount.usd is not None:
        share = float(amount.usd / bill.usd)
    else:
        share = amount.gpu_hours / bill.gpu_hours if bill.gpu_hours else 0.0
    return {
        "step": what,
        "saving": kind or None,
        "advice": count,
        "gpu_hours": amount.gpu_hours,
        "usd": amount.usd,
        "pct": 100 * share,
    }


def titled(parts: "Sequence[tuple[str, Rows]]", output: str) -> str:
    """Return tables under their titles."""
    mark = "## " if output == "md" else ""
    return "\n".join(f"{mark}{title}\n\n{render(rows, output, noun='')}" for title, rows in parts)
