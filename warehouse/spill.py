"""Give each connection a folder of its own for what the engine spills to disk.

The engine names its files the same in every process: two that spill into one folder overwrite each
other's, and end with a segmentation fault.
"""

from contextlib import suppress
from pathlib import Path

from fallow.system.process_folders import choose_folder_name, remove_left_over


def choose_spill(home: Path) -> Path:
    """Return a new folder's path below `spill/`; folders of processes that ended are removed.

    The engine makes the folder when it first needs it, and removes it when it is closed.
    """
    root = home / "spill"
    with suppress(OSError):  # a reader of a home that it may not write
        root.mkdir(mode=0o700, exist_ok=True)
        remove_left_over(root)
    return root / choose_folder_name()
