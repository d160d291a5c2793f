"""Which nodes may be cut again as a whole, as mig-parted names it, and who is on their devices."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from analyzers.fragmentation.mig_devices import MigGpu
from analyzers.queries import load_sql
from fallow.protocols import Views

LOOKBACK_S = 900.0
"""Processes are those of the last three rollups of five minutes."""


def build_parameters(
    views: Views, cluster: str, until: datetime, cut: Sequence[MigGpu]
) -> dict[str, Any] | None:
    """Return what an executor needs; None = no node can be cut again as a whole.

    `nodes`: name, `mig_config` (all-PROFILE) and `processes` (null = unknown) of nodes all of whose
    boards are free and would strand less with one and the same uniform layout.
    """
    of: dict[str, list[MigGpu]] = {}
    for board in cut:
        of.setdefault(board.node, []).append(board)
    wanted = {
        node: layout for node, boards in sorted(of.items()) if (layout := _name_layout(boards))
    }
    if not wanted:
        return None
    asked = {"cluster": cluster, "nodes": list(wanted), "until": until, "back_s": LOOKBACK_S}
    rows = views.query(load_sql("fragmentation/processes"), asked).to_pylist()
    processes = {row["node"]: row["processes"] for row in rows}
    return {
        "nodes": [
            {"node": node, "mig_config": layout, "processes": processes.get(node)}
            for node, layout in wanted.items()
        ]
    }


def _name_layout(boards: Sequence[MigGpu]) -> str | None:
    """Return mig-parted's name of the layout that all boards of a node should have."""
    if any(board.held for board in boards):
        return None
    gain = sum(board.stranded - board.stranded_recut for board in boards)
    profiles = {name for board in boards for name in board.layout}
    if gain <= 0 or len(profiles) != 1:
        return None
    return "all-" + profiles.pop().replace("+", ".")
