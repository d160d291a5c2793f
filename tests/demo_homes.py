"""Demo fleets that tests of several files read: simulated once in a run, then copied."""

import fcntl
from pathlib import Path

import pytest

from fallow.demo_marker import MARKER
from runtime.experiments import demo
from runtime.rendering.finding_tables import render_story
from tests.copies import copied

STORY = "story.json"
"""A file of such a home: what `fallow demo -o json` prints."""


def copy_demo(
    factory: pytest.TempPathFactory, home: Path, *, days: int, gpus: int, seed: int = 1
) -> Path:
    """Copy the home of a demo in which nothing acts; return `home`.

    The processes of a run share the demo that is copied: the first one that asks makes it.
    """
    shared = factory.getbasetemp()
    if shared.name.startswith("popen-"):  # a worker's folder is in that of its run
        shared = shared.parent
    source = shared / f"demo-of-{days}-days-{gpus}-gpus-seed-{seed}"
    complete = source.with_suffix(".complete")
    with source.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not complete.exists():
            story = demo.run_demo(
                days=days,
                gpus=gpus,
                seed=seed,
                progress=lambda _step, _part: None,
                home=source,
                acts=False,
            )
            (source / STORY).write_text(render_story(story, "json"))
            complete.touch()
    copied(source, home)
    marker = home / MARKER
    marker.write_text(marker.read_text().replace(str(source), str(home)))
    return home
