"""Find a process's pod by its cgroup, and the pod's name by the kubelet's log folders.

Needs the host's PID namespace. Rules: telemetry-and-waste.md#processes; cgroup v1 and v2, every
runtime.
"""

import re
from collections.abc import Mapping
from pathlib import Path

import msgspec

_POD = re.compile(r"pod([a-f0-9_-]{32,})")
_RUNTIME = re.compile(r"^(?:cri-containerd-|docker-|crio-|libpod-)")
_CONTAINER = re.compile(r"^[a-f0-9]{12,}$")


class ProcessLocation(msgspec.Struct, frozen=True):
    """The pod and the container a process runs in."""

    pod_uid: str
    container_id: str | None


def locate_process(proc_root: Path, pid: int) -> ProcessLocation | None:
    """Return where a process runs; None for a process of the host or one that has ended."""
    try:
        text = (proc_root / str(pid) / "cgroup").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    return parse_cgroup(text)


def parse_cgroup(text: str) -> ProcessLocation | None:
    """Read `/proc/<pid>/cgroup`: one line under v2, a line per controller under v1."""
    for line in text.splitlines():
        path = line.split(":", 2)[-1]
        match = _POD.search(path)
        if match is None:
            continue
        last = _RUNTIME.sub("", path.rstrip("/").rpartition("/")[2].removesuffix(".scope"))
        container = last if _CONTAINER.match(last) else None
        return ProcessLocation(match.group(1).replace("_", "-"), container)
    return None


def list_pod_names(pod_logs: Path) -> Mapping[str, tuple[str, str]]:
    """Return (namespace, pod) by UID from the kubelet's `<namespace>_<pod>_<uid>` folders."""
    try:
        names = [entry.name.split("_") for entry in pod_logs.iterdir()]
    except OSError:
        return {}
    return {n[2]: (n[0], n[1]) for n in names if len(n) == 3}  # noqa: PLR2004
