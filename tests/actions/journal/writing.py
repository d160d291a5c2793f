"""Processes of their own that write a journal."""

import os
import signal
from datetime import UTC, datetime
from pathlib import Path

from actions.journal import Journal


def _now() -> datetime:
    return datetime.now(UTC)


def append(path: Path, who: str, rows: int) -> None:
    """Append so many rows."""
    with Journal.open(path, _now, actor=who) as journal:
        for number in range(rows):
            journal.append("seen", f"{who}-{number}", {"number": number})


def die_after(path: Path, rows: int) -> None:
    """Append so many rows and die as the machine would."""
    journal = Journal.open(path, _now, actor="dying")
    for number in range(rows):
        journal.append("seen", f"dying-{number}", {})
    os.kill(os.getpid(), signal.SIGKILL)
