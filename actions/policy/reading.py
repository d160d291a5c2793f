"""Read policies from YAML: every error names the file, the line, the key and what is legal."""

from collections.abc import Iterable
from pathlib import Path

from actions.policy.model import Policy


def read(paths: Iterable[Path]) -> tuple[Policy, ...]:
    """Return the policies of files and folders, in the order of their names.

    Raises:
        UsageError: a file cannot be read, or holds what is not legal.
    """
    raise NotImplementedError
