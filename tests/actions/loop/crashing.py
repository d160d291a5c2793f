"""An actor in a process of its own that kills itself at one step, as `kill -9` would."""

import os
import signal
from datetime import datetime
from pathlib import Path
from typing import Any

from actions.cluster.client import KubeClient
from actions.journal import JournalState
from tests.actions.loop.site import Evidence, Told, actor_of, api, journal_in


class Death:
    """Counts the steps; the last one is the end."""

    def __init__(self, step: int) -> None:
        self.left = step

    def __call__(self, _step: str) -> None:
        self.left -= 1
        if self.left < 0:
            os.kill(os.getpid(), signal.SIGKILL)


def turn(  # noqa: PLR0917  (arguments of a process)
    url: str,
    folder: Path,
    now: datetime,
    idle: list[tuple[str, str]],
    step: int,
    node_verb: str = "cut-again",
    **more: Any,
) -> None:
    """Do one turn and die at a step, or end well where there are fewer steps.

    `more`: planner, decider and policies, where they are not the site's own.
    """
    evidence = Evidence(url, lambda: now, node_verb)
    evidence.idle = idle
    record = JournalState(journal_in(folder, lambda: now))
    door = KubeClient(api(url), "c")
    more |= {"evidence": evidence, "notifier": Told(), "pulse": Death(step)}
    actor_of(door, record, folder, lambda: now, "one", **more).turn(dry_run=False)


def undo(url: str, folder: Path, now: datetime, action: str, step: int) -> None:
    """Undo an action and die at a step."""
    record = JournalState(journal_in(folder, lambda: now))
    door = KubeClient(api(url), "c")
    more = {"evidence": Evidence(url, lambda: now), "notifier": Told(), "pulse": Death(step)}
    actor_of(door, record, folder, lambda: now, "cli", **more).undo(action, "ann")
