"""List what was renamed since 0.1.0: settings, policy keys, columns, fields, gates, options.

`renamed.csv` is the table; CHANGELOG.md lists it, and a test keeps both equal. An old setting,
policy key or option is refused with its new name. A column is renamed in the warehouse. An old
field of the journal stays readable without end, because its chain of hashes is never rewritten.
"""

from functools import cache
from typing import Literal, NamedTuple, get_args

from fallow.resources import read_table

Kind = Literal[
    "setting", "policy", "column", "event", "journal", "json", "gate", "job", "protocol", "option"
]
KINDS: tuple[str, ...] = get_args(Kind)


class Rename(NamedTuple):
    """A name that changed: its kind, its old and its new form."""

    kind: str
    old: str
    new: str


@cache
def list_renames() -> tuple[Rename, ...]:
    """Return the table of names that changed, in its order."""
    return tuple(Rename(**row) for row in read_table("fallow", "renamed.csv"))


@cache
def read_renames(kind: Kind) -> dict[str, str]:
    """Return the new names of a kind by the old ones; callers do not change the result."""
    return {rename.old: rename.new for rename in list_renames() if rename.kind == kind}
