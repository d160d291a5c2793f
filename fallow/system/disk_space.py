"""Tell a full disk from a broken one where the error does not say which it is."""

import os
from pathlib import Path

LEAST_BYTES = 1 << 20
"""SQLite's smallest files and its locks' shared memory need less than this to be made."""


def is_disk_full(folder: Path) -> bool:
    """Return whether the file system of a folder has nearly no space, or no file, left now."""
    try:
        state = os.statvfs(folder)
    except OSError:
        return False
    has_no_file = state.f_files > 0 and state.f_favail == 0
    return has_no_file or state.f_bavail * state.f_frsize < LEAST_BYTES
