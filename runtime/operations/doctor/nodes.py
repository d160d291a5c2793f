"""Check whether telemetry and inventory use the same node names."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from collectors.doctor import CheckRow, format_few
from fallow.resources import read_text
from fallow.window import Window
from warehouse import coverage, still_gpus

if TYPE_CHECKING:
    from fallow.protocols import Views

DAYS = 7
UNSEEN_STEP = "does the exporter show every GPU of these nodes (nvidia-smi -L there)?"
STILL_STEP = (
    "export DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION where the GPUs have it (docs/prometheus.md)"
)


def check_nodes(views: "Views", now: datetime, cluster: str | None = None) -> Iterator[CheckRow]:
    """Name nodes that have several names, and GPUs that no exporter shows."""
    sql = read_text("runtime.operations.doctor", "other_names.sql")
    others = views.query(sql, {"cluster": cluster}).to_pylist()
    if others:
        named = format_few([f"{row['address']} is {row['node']}" for row in others])
        yield CheckRow("names of nodes", "ok", f"other names of one node: {named}")
    yield from _check_unseen(views, Window(now - timedelta(days=DAYS), now), cluster)


def _check_unseen(views: "Views", window: Window, cluster: str | None) -> Iterator[CheckRow]:
    """Say which paid GPUs no exporter shows, and of which idle ones nothing proves it."""
    unseen = coverage.describe_unseen_gpus(views, window, cluster)
    if unseen is not None:
        yield CheckRow("unseen GPUs", "warn", unseen, UNSEEN_STEP)
    still = still_gpus.describe_still_gpus(views, window, cluster)
    if still is not None:
        yield CheckRow("idle or frozen GPUs", "warn", still, STILL_STEP)
