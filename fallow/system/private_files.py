"""Keep the home folder to its owner: folders 0700, files 0600, whatever the umask was."""

import os
import stat
from pathlib import Path

OTHERS = stat.S_IRWXG | stat.S_IRWXO
"""The rights of the group and of everybody else."""

HOME_NAMES = (
    "catalog.sqlite*", "journal.sqlite*", "deliveries.sqlite*", "writer.lock", "backup.lock",
    "FREEZE", "data", "cold", "staging", "spill", "queue", "snapshots", "baselines",
)  # fmt: skip
"""What Fallow writes in its home folder; other files there are not its own."""

_umasks: list[int] = []
"""The umask of the user, once this process has another."""


def keep_files_private() -> None:
    """Create every file of this process for its owner alone, from now on.

    The engine, SQLite and the object store's client create files too, and take no mode.
    """
    before = os.umask(OTHERS)
    if not _umasks:
        _umasks.append(before)


def share_file(path: Path) -> None:
    """Give a file that a person asked for by name the mode that the person's umask gives."""
    if _umasks:
        path.chmod(0o666 & ~_umasks[0])


def share_folder(path: Path) -> None:
    """Give a folder that a person asked for by name the mode that the person's umask gives."""
    if _umasks:
        path.chmod(0o777 & ~_umasks[0])


def is_open_to_others(path: Path) -> bool:
    """Return whether others than its owner may read, write or enter a file or folder."""
    return bool(path.stat().st_mode & OTHERS)


def narrow_home(home: Path) -> None:
    """Take the rights of others from a home folder and from what Fallow wrote in it.

    The folder itself comes last: a run that was interrupted begins again. A folder that is closed
    already is not walked, and one of another owner is left as it is (`fallow doctor` says so).
    """
    if not home.is_dir() or not is_open_to_others(home) or home.stat().st_uid != os.geteuid():
        return
    for name in HOME_NAMES:
        for path in home.glob(name):
            for part in (*path.rglob("*"), path):
                _narrow(part)
    _narrow(home)


def _narrow(path: Path) -> None:
    try:
        status = path.lstat()
        if status.st_mode & OTHERS and not stat.S_ISLNK(status.st_mode):
            path.chmod(stat.S_IMODE(status.st_mode) & ~OTHERS)
    except (FileNotFoundError, PermissionError):
        # A file that another process has just replaced, or of another owner: behind a closed folder
        # nobody else reaches it.
        return
