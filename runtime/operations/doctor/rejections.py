"""List what was read in the last day and refused: objects of a cluster, lines of an exporter."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from collectors.doctor import CheckRow, format_few
from collectors.frame import MARGIN
from fallow.resources import read_text

if TYPE_CHECKING:
    from fallow.protocols import Views

RECENT = timedelta(days=1)
STEP = (
    "correct the object, or remove it; until then what it says is unknown. All of them: fallow "
    'warehouse query "SELECT * FROM rejection ORDER BY last_seen DESC"'
)


def check_rejections(views: "Views", now: datetime, cluster: str | None) -> Iterator[CheckRow]:
    """Return a row per kind of object that was refused, with some of them and the reasons.

    Names that nothing explains and counts that differ have rows of their own (`unknown_names`).
    """
    yield from _count_values(views, cluster)
    rows = views.query(
        "SELECT * FROM rejection WHERE (last_seen >= $since OR kind = 'ledger')"
        " AND kind <> 'resource' AND NOT (kind = 'node' AND field = 'gpu_count')"
        " AND (kind <> 'ledger' OR (cluster, name) IN"  # no hour that was written since
        " (SELECT (cluster, strftime(bucket, '%Y-%m-%d %H:%M')) FROM unposted"
        " WHERE cluster IS NOT NULL))"
        " AND ($cluster IS NULL OR cluster = $cluster) ORDER BY kind, last_seen DESC, name",
        {"since": now - RECENT, "cluster": cluster},
    ).to_pylist()
    for kind in dict.fromkeys(row["kind"] for row in rows):
        named = [
            f"{row['namespace']}/{row['name']} ({row['field']}: {row['reason']}; {row['source']})"
            for row in rows
            if row["kind"] == kind
        ]
        finding = f"{len(named)} refused since yesterday: {format_few(named, most=3)}"
        yield CheckRow(f"rejected {kind}", "warn", finding, STEP)


def _count_values(views: "Views", cluster: str | None) -> Iterator[CheckRow]:
    """Yield a row of the values that collectors refused or clipped on their newest day."""
    text = read_text("runtime.operations.doctor", "doubtful_values.sql")
    rows = views.query(text, {"cluster": cluster}).to_pylist()
    named = [
        f"{row['collector']} of {row['cluster']} {row['refused']:,} refused, "
        f"{row['clipped']:,} clipped of {row['total']:,}"
        for row in rows
    ]
    if named:
        finding = f"ratios up to {MARGIN:g} count as 1, what is farther out is refused: "
        yield CheckRow("doubtful values", "ok", finding + format_few(named))
