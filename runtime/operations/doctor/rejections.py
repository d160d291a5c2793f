"""List what was read in the last day and refused: objects of a cluster, lines of an exporter."""

from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from collectors.doctor import CheckRow, format_few
from collectors.inventory import UNKNOWN_RESOURCE

if TYPE_CHECKING:
    from fallow.protocols import Views

RECENT = timedelta(days=1)
STEP = (
    "correct the object, or remove it; until then what it says is unknown. All of them: fallow "
    'warehouse query "SELECT * FROM rejection ORDER BY last_seen DESC"'
)

UNKNOWN_STEP = (
    "their pods and nodes have no GPU-hours here. Which: fallow warehouse query "
    "\"SELECT * FROM rejection WHERE kind = 'resource'\""
)


def check_rejections(views: "Views", now: datetime, cluster: str | None) -> Iterator[CheckRow]:
    """Return a row per kind of object that was refused, with some of them and the reasons."""
    rows = views.query(
        "SELECT * FROM rejection WHERE last_seen >= $since"
        " AND ($cluster IS NULL OR cluster = $cluster) ORDER BY kind, last_seen DESC, name",
        {"since": now - RECENT, "cluster": cluster},
    ).to_pylist()
    yield from _list_unknown_resources(rows)
    for kind in dict.fromkeys(row["kind"] for row in rows if row["kind"] != UNKNOWN_RESOURCE):
        named = [
            f"{row['namespace']}/{row['name']} ({row['field']}: {row['reason']}; {row['source']})"
            for row in rows
            if row["kind"] == kind
        ]
        finding = f"{len(named)} refused since yesterday: {format_few(named, most=3)}"
        yield CheckRow(f"rejected {kind}", "warn", finding, STEP)


def _list_unknown_resources(rows: list[dict[str, Any]]) -> Iterator[CheckRow]:
    """Yield a row of resources that look like accelerators: how many request and offer them."""
    unknown = [row for row in rows if row["kind"] == UNKNOWN_RESOURCE]
    pods = Counter(row["field"] for row in unknown if row["namespace"])
    nodes = Counter(row["field"] for row in unknown if not row["namespace"])
    named = [f"{name} ({pods[name]} pods, {nodes[name]} nodes)" for name in sorted(pods | nodes)]
    if named:
        finding = f"not counted, though they may be accelerators: {format_few(named)}"
        yield CheckRow("unknown resources", "warn", finding, UNKNOWN_STEP)
