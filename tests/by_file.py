"""Which process runs which tests: a file's all in one, those that take longest first.

Fixtures of a module are made once that way, and files that share a costly one name a group by
`pytest.mark.xdist_group`. xdist's own `loadgroup` no longer groups under pytest 9.2, and says
nothing (pytest-xdist issue 1386).
"""

import re
from functools import cache
from pathlib import Path

from xdist.scheduler import LoadScopeScheduling

ROOT = Path(__file__).resolve().parents[1]
_GROUP = re.compile(r'xdist_group\("([^"]+)"\)')
_SLOW = re.compile(r"\bmark\.slow\b")


class ByFile(LoadScopeScheduling):  # type: ignore[misc]  # xdist has no types
    """Hands out whole files, or whole groups of files, in the order in which they are met."""

    def _split_scope(self, nodeid: str) -> str:
        return scope(nodeid.partition("::")[0])


@cache
def scope(path: str) -> str:
    """Return the group that a file names, else the file."""
    named = _GROUP.search(_text(path))
    return named[1] if named else path


@cache
def slow(path: str) -> int:
    """Return how often a file says that a test of it is slow."""
    return len(_SLOW.findall(_text(path)))


def _text(path: str) -> str:
    return (ROOT / path).read_text(encoding="utf-8")
