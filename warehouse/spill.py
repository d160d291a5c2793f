"""Give each connection a folder of its own for what the engine spills to disk.

The engine names its files the same in every process: two that spill into one folder overwrite each
other's, and end with a segmentation fault.
"""

import os
import shutil
import socket
import uuid
from contextlib import suppress
from pathlib import Path

_chosen: set[str] = set()
"""Names of this process."""


def choose_spill(home: Path) -> Path:
    """Return a new folder's path below `spill/`; folders of processes that ended are removed.

    The engine makes the folder when it first needs it, and removes it when it is closed.
    """
    root = home / "spill"
    name = f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:8]}"
    _chosen.add(name)
    with suppress(OSError):  # a reader of a home that it may not write
        root.mkdir(mode=0o700, exist_ok=True)
        for folder in root.iterdir():
            if _is_left_over(folder.name):
                shutil.rmtree(folder, ignore_errors=True)
    return root / name


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
