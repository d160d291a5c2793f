"""Copy the output of a process of ours into the log: its JSON lines as they are, text as events."""

import json
import logging
import sys
from typing import IO

log = logging.getLogger("fallow.dashboard.output")

LONGEST_LINE = 1 << 20
"""Bytes of a line that are read at once; a longer one becomes several events."""
KEYS = frozenset({"timestamp", "level", "logger", "event"})
"""What every line of the log has."""


def copy_output(output: IO[bytes]) -> None:
    """Copy lines until the output ends; empty ones are left out."""
    with output:
        while line := output.readline(LONGEST_LINE):
            text = line.decode("utf-8", errors="replace").strip()
            if is_event(text):
                _write(text)
            elif text:
                log.info("%s", text)


def is_event(text: str) -> bool:
    """Return whether a line is an event of our log."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return False
    return isinstance(value, dict) and value.keys() >= KEYS


def _write(text: str) -> None:
    try:
        sys.stderr.write(text + "\n")
        sys.stderr.flush()
    except (OSError, ValueError):
        return
