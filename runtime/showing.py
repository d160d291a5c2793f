"""How work and stories are shown: progress on a terminal's stderr, the story on stdout."""

import os
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import msgspec

from dashboards import story as page
from dashboards.story import Story
from runtime.output import document, say

Progress = Callable[[str, float], None]
"""Say what is being done and which part (0-1) of it is."""

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
        from runtime.output import render  # noqa: PLC0415

        return render([msgspec.structs.asdict(s) for s in story.states], "csv", noun="states")
    if output == "md":
        return page.markdown(story)
    terminal = sys.stdout.isatty()
    width = shutil.get_terminal_size((WIDE, 24)).columns if terminal else WIDE
    colour = terminal and not os.environ.get("NO_COLOR")
    return page.terminal(story, width=max(NARROW, min(width, 120)), colour=colour)
