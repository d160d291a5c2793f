"""Store incidents as pages and reports show them, and read their evidence: the table `incident`."""

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal

import msgspec
import pyarrow as pa

from fallow.protocols import Views
from fallow.resources import read_text
from fallow.rows import Row, decode_rows
from fallow.tables import get_schema
from fallow.window import Window

if TYPE_CHECKING:
    from warehouse.lake import Warehouse

CONTINUED = timedelta(hours=1)
"""A stored incident may go on this long after its last sign: the signs of one device do."""
LONGEST = timedelta(hours=24)
"""Of an incident whose first sign is older before a window, that sign is not read again."""
BEFORE_HANG = timedelta(hours=1)
"""The cause of a hang may have shown its last sign this long before the hang."""
FIRST_SIGN = 'SELECT min(start) AS at FROM incident WHERE start >= $earliest AND "end" >= $edge'
REPLACED = 'start >= $earliest AND start < $until AND "end" >= $edge OR list_contains($ids, id)'


class IncidentSign(msgspec.Struct, frozen=True):
    """One piece of evidence, as `incident.evidence` and `fallow.incidents/v1` have it.

    `at`: when it happened. `known_at`: when telemetry showed it. `of_cause`: it names the place of
    the cause.
    """

    signal: str
    at: datetime
    known_at: datetime | None
    text: str
    source: str
    node: str | None = None
    device: str | None = None
    pod: str | None = None
    of_cause: bool = False


class StoredIncident(Row, frozen=True):
    """A row of the table `incident` (`stored_incidents.sql`)."""

    cluster: str
    id: str
    cause: str
    step: str
    why: str | None
    evidence: str | None
    workloads: str | None
    end_at: datetime

    def is_about(self, cluster: str, workload: str) -> bool:
        """Return whether it is about a workload of a cluster: namespace/kind/name."""
        return self.cluster == cluster and workload in msgspec.json.decode(self.workloads or "[]")

    @property
    def nodes(self) -> tuple[str, ...]:
        """Return the nodes that signs of the cause name, not those of all ranks."""
        return list_cause_places(self.evidence, "node")

    @property
    def devices(self) -> tuple[str, ...]:
        """Return the devices that signs of the cause name."""
        return list_cause_places(self.evidence, "device")


def read_stored_incidents(views: Views, window: Window) -> list[StoredIncident]:
    """Return the incidents with a sign in a window, known at its end; the newest sign first."""
    sql = read_text("warehouse", "stored_incidents.sql")
    return decode_rows(views.query(sql, window.bounds()), StoredIncident)


def list_cause_places(evidence: str | None, place: Literal["node", "device"]) -> tuple[str, ...]:
    """Return the nodes or devices that signs of the cause name, not those of all ranks."""
    signs = msgspec.json.decode(evidence or "[]")
    return tuple(
        sorted({sign[place] for sign in signs if sign.get("of_cause") and sign.get(place)})
    )


def extend_to_first_signs(views: Views, window: Window) -> Window:
    """Return the window from the first sign of each stored incident that may go on in it.

    So an incident is read whole and keeps its id while the window slides over it.
    """
    edges = _find_edges(window)
    (row,) = views.query(
        FIRST_SIGN, {"earliest": edges["earliest"], "edge": edges["edge"]}
    ).to_pylist()
    first = row["at"]
    if first is None or first >= window.bounds()["since"]:
        return window
    return Window(first.replace(tzinfo=window.start.tzinfo), window.end)


def write_incidents(wh: "Warehouse", rows: pa.Table, window: Window) -> int:
    """Replace the incidents that reach into a window; return how many were written.

    `rows` are those read in the window that `extend_to_first_signs` gives.
    """
    rows = rows.cast(get_schema("incident"))
    return wh.replace(
        "incident", rows, REPLACED, {**_find_edges(window), "ids": rows["id"].to_pylist()}
    )


def _find_edges(window: Window) -> dict[str, Any]:
    bounds = window.bounds()
    return {
        "earliest": bounds["since"] - LONGEST,
        "edge": bounds["since"] - CONTINUED,
        "until": bounds["until"],
    }
