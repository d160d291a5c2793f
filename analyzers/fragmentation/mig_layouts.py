"""Find nodes whose whole layout may be changed, by mig-parted's name, and their processes."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from analyzers.fragmentation.mig_devices import MigGpu
from analyzers.fragmentation.rows import read_processes
from fallow.protocols import Views

LOOKBACK_S = 900.0
"""Processes are those of the last three rollups of five minutes."""


def build_parameters(
    views: Views, cluster: str, until: datetime, cut: Sequence[MigGpu]
) -> dict[str, Any] | None:
    """Return the executor's parameters; None = no node's layout can be changed as a whole.

    `nodes`: name, `mig_config` (all-PROFILE) and `processes` (null = unknown) of nodes of which all
    GPUs are free and would strand less with one and the same uniform layout.
    """
    of: dict[str, list[MigGpu]] = {}
    for gpu in cut:
        of.setdefault(gpu.node, []).append(gpu)
    wanted = {node: layout for node, gpus in sorted(of.items()) if (layout := _name_layout(gpus))}
    if not wanted:
        return None
    rows = read_processes(views, cluster, list(wanted), until, LOOKBACK_S)
    processes = {row.node: row.processes for row in rows}
    return {
        "nodes": [
            {"node": node, "mig_config": layout, "processes": processes.get(node)}
            for node, layout in wanted.items()
        ]
    }


def _name_layout(gpus: Sequence[MigGpu]) -> str | None:
    """Return mig-parted's name of the layout that all GPUs of a node should have."""
    if any(gpu.allocated for gpu in gpus):
        return None
    gain = sum(gpu.stranded - gpu.stranded_recut for gpu in gpus)
    profiles = {name for gpu in gpus for name in gpu.layout}
    if gain <= 0 or len(profiles) != 1:
        return None
    return "all-" + profiles.pop().replace("+", ".")
