"""Check that a collector runs for each shard: what is lost is said, with its targets."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from collectors.doctor import CheckRow, Status, format_few
from warehouse.shards import read_shards

if TYPE_CHECKING:
    from warehouse.lake import Warehouse


def check_shards(warehouse: "Warehouse", cluster: str | None = None) -> Iterator[CheckRow]:
    """Return a row per cluster whose collectors have divided the targets (PostgreSQL only)."""
    states = read_shards(warehouse, cluster)
    for name in sorted({state.cluster for state in states}):
        mine = [state for state in states if state.cluster == name]
        lost = [state for state in mine if not state.running]
        targets = sum(state.targets for state in mine)
        if not lost:
            holders = format_few(sorted({str(state.holder) for state in mine}), most=3)
            finding = f"{name}: all {len(mine)} run and collect {targets:,} targets ({holders})"
            yield CheckRow("shards", "ok", finding)
            continue
        uncollected = sum(state.uncollected for state in lost)
        finding = (
            f"{name}: {len(lost)} of {len(mine)} do not run; nobody collects {uncollected:,} of "
            f"{targets:,} targets: shard {format_few([s.describe() for s in lost], most=3)}"
        )
        # No collector at all is a service that was stopped, not a part that was lost.
        status: Status = "bad" if len(lost) < len(mine) else "warn"
        shard = f" --shard {lost[0].shard}" if len(mine) > 1 else ""
        yield CheckRow("shards", status, finding, f"fallow up --role collector{shard}")
