"""Write the end of the journal into what leaves this machine: reports and notices.

Whoever cuts the journal or writes it again with other hashes cannot change what was sent:
`fallow actions --verify --anchor ROW:HASH` compares.
"""

from collections.abc import Callable
from datetime import datetime

from actions.journal import Journal
from fallow.errors import FallowError
from fallow.settings import Settings
from runtime.operations.acting.plans import get_journal_path

LABEL = "Journal: "
DIGITS = 16
"""Hexadecimal digits of the hash that a message has: nobody finds other rows with the same."""


def describe_anchor(journal: Journal) -> str:
    """Return the line of a message that names the journal's end; empty without rows."""
    try:
        anchor = journal.anchor(DIGITS)
    except FallowError:  # the message goes out all the same
        return ""
    return f"{LABEL}{anchor}" if anchor else ""


def read_anchor_line(settings: Settings, clock: Callable[[], datetime]) -> str:
    """Return the line for the journal of these settings; empty where there is none."""
    try:
        with Journal.open(get_journal_path(settings), clock, write=False) as journal:
            return describe_anchor(journal)
    except FallowError:
        return ""


def find_anchor(text: str) -> str:
    """Return the anchor that a message ends with; empty: none."""
    last = text.rpartition("\n")[2]
    return last.removeprefix(LABEL) if last.startswith(LABEL) else ""
