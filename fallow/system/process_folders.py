"""Folders that belong to one process: what a killed process left is removed by the next one."""

import os
import shutil
import socket
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_chosen: set[str] = set()
"""Names of this process."""


def choose_folder_name() -> str:
    """Return a new folder's name, with this machine and this process in it."""
    name = f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:8]}"
    _chosen.add(name)
    return name


def remove_left_over(root: Path, prefix: str = "") -> None:
    """Remove the folders below `root` whose process has ended; `prefix`: before the chosen names.

    A folder of another machine, or one that cannot be removed, stays.
    """
    with suppress(OSError):
        for folder in root.glob(f"{prefix}*"):
            if _is_left_over(folder.name.removeprefix(prefix)):
                shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def open_temporary_folder(kind: str) -> Iterator[Path]:
    """Yield a new folder `fallow-<kind>-...` in the temp folder; it is deleted afterwards.

    Those of processes that were killed are deleted first.
    """
    root, prefix = Path(tempfile.gettempdir()), f"fallow-{kind}-"
    remove_left_over(root, prefix)
    folder = root / (prefix + choose_folder_name())
    folder.mkdir(mode=0o700)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _is_left_over(name: str) -> bool:
    host, _, rest = name.partition(f"{socket.gethostname()}-")
    pid = rest.partition("-")[0]
    if host or not pid.isdigit():
        return False  # another machine's, or no folder of ours
    if int(pid) == os.getpid():
        return name not in _chosen  # an earlier process with the same number
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    return False
