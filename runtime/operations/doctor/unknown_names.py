"""List the names that nothing explains, with the pods and GPUs that each concerns."""

from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING

from collectors.doctor import CheckRow, format_few
from fallow.resources import read_table
from warehouse.unknown_names import read_unknown_names

if TYPE_CHECKING:
    from fallow.protocols import Views


def list_kinds() -> list[str]:
    """Return the kinds of names, and of counts that differ."""
    return [row["kind"] for row in _read_kinds()]


def _read_kinds() -> list[dict[str, str]]:
    return read_table("runtime.operations.doctor", "unknown_names.csv")


def check_unknown_names(views: "Views", now: datetime, cluster: str | None) -> Iterator[CheckRow]:
    """Return a row per kind of name, with those of the most GPUs."""
    rows = read_unknown_names(views, now, cluster).to_pylist()
    for row in _read_kinds():
        named = [
            f"{name['name']} ({name['pods']} pods, {name['nodes']} nodes, {name['gpus']:g} GPUs"
            + (f": {name['reason']})" if row["kind"] == "count" else f", {name['cluster']})")
            for name in rows
            if name["kind"] == row["kind"]
        ]
        if named:
            yield CheckRow(
                row["check"], "warn", f"{row['finding']}: {format_few(named)}", row["step"]
            )
