"""Read how much memory and how many cores this process may use: its cgroup's limits, else all.

A container's limit is in its cgroup, and the machine's size says nothing about it. Both versions of
cgroups are read, with all parents, since the smallest limit counts
(docs.kernel.org/admin-guide/cgroup-v2.html, cgroup-v1/memory.html).
"""

import ctypes
import math
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

ROOT = Path("/")
_MMAP_THRESHOLD, _TRIM_THRESHOLD = -3, -1
"""Options of glibc's `mallopt`: each ends that the bounds rise by themselves."""
_LARGE = 128 << 10
"""Where both bounds are when a program starts."""
V1_NONE = 1 << 60
"""Version 1 writes "no limit" as a number of pages that is far above any machine."""


def read_memory_limit(root: Path = ROOT) -> int:
    """Return the bytes of memory that this process may use: its least cgroup limit, or the RAM."""
    limits = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for folder in _list_cgroups(root, "memory"):
        for name in ("memory.max", "memory.limit_in_bytes"):
            limit = _read_number(folder / name)
            if limit is not None and limit < V1_NONE:
                limits.append(limit)
    return min(limits)


def release_memory() -> None:
    """Return to the system what the C library keeps of freed memory, where it can (glibc)."""
    with suppress(AttributeError, OSError, TypeError):
        ctypes.CDLL(None).malloc_trim(0)


def map_large_pieces() -> None:
    """Let the C library give freed pieces of over 128 KiB back at once, where it can (glibc).

    It raises this bound to 32 MiB as such pieces are freed. Later ones then lie among small ones,
    whose pages stay: 0.14 MiB of each accounting pass of 64 GPUs.
    """
    with suppress(AttributeError, OSError, TypeError):
        for option in (_MMAP_THRESHOLD, _TRIM_THRESHOLD):
            ctypes.CDLL(None).mallopt(option, _LARGE)


def read_cpu_limit(root: Path = ROOT) -> int:
    """Return how many cores this process may use at once, at least 1: a quota is rounded up."""
    limits = [float(len(os.sched_getaffinity(0)))]
    for folder in _list_cgroups(root, "cpu"):
        quota, period = _read_quota(folder)
        if quota and period:
            limits.append(quota / period)
    return max(1, math.ceil(min(limits)))


def _read_quota(folder: Path) -> tuple[int | None, int | None]:
    words = _read_text(folder / "cpu.max").split()
    if len(words) == 2:  # noqa: PLR2004  (version 2: quota and period on one line)
        return _parse_number(words[0]), _parse_number(words[1])
    quota = _read_number(folder / "cpu.cfs_quota_us")
    return quota, _read_number(folder / "cpu.cfs_period_us")


def _list_cgroups(root: Path, controller: str) -> Iterator[Path]:
    """Yield the folders of this process's cgroups that may limit something, with their parents."""
    base = root / "sys/fs/cgroup"
    for line in _read_text(root / "proc/self/cgroup").splitlines():
        number, controllers, path = line.split(":", 2)
        if number == "0":
            hierarchies = (base, base / "unified")
        elif controller in controllers.split(","):
            hierarchies = (base / controller, base / controllers)
        else:
            continue
        for hierarchy in hierarchies:
            folder = hierarchy / path.strip("/")
            # In a container with a namespace of cgroups the path is "/" or leads out of it.
            yield from (f for f in (folder, *folder.parents) if f.is_relative_to(hierarchy))


def _read_number(file: Path) -> int | None:
    return _parse_number(_read_text(file).strip())


def _parse_number(text: str) -> int | None:
    """Return a limit; None = "max", -1 or nothing."""
    return int(text) if text.isdigit() else None


def _read_text(file: Path) -> str:
    try:
        return file.read_text()
    except OSError:
        return ""
