"""Derive which pod held what share of which device when, from telemetry and the pod inventory."""

from functools import cache
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from fallow.protocols import Views
from fallow.rejections import Rejection, build_batch
from fallow.resources import read_table
from fallow.tables import Batch, get_schema
from fallow.window import Window
from warehouse.pricing import ERAS
from warehouse.rollup import BUCKET
from warehouse.steps import PAYING_TEAMS, POD_OWNERS, compose_query

if TYPE_CHECKING:
    from warehouse.lake import Warehouse

STEPS = (
    *ERAS,
    POD_OWNERS,
    *PAYING_TEAMS,
    *(
        f"allocation/{name}"
        for name in (
            "seen",
            "lives",
            "listed",
            "misplaced",
            "named",
            "matched",
            "mixed",
            "islands",
            "runs",
            "edges",
            "continued",
            "lingering",
            "sharers",
            "shared",
            "evidence",
            "best_evidence",
            "excessive",
            "unnamed",
            "users",
            "claims",
            "usage",
            "charged",
            "crowded",
            "fitted",
            "owned",
            "refused",
            "allocated",
        )
    ),
)
TOUCHING = 'start <= $until AND "end" >= $since'


def write_allocations(wh: "Warehouse", window: Window) -> int:
    """Write the `allocation` rows of the window; return how many touch it.

    Read: rollup_5m, holding, pod, node, device. Whole devices and MIG instances are exact. Time
    slicing, and use above the request, are estimates. The shares of one device never sum to more
    than 1 at any time. A second run, or a run over an overlapping window, gives the same rows.
    Claims that take nothing become `rejection` rows.
    """
    window = widen_to_bucket(window)
    rows, refused = _split(_derive_claims(wh, window))
    wh.replace("allocation", rows, TOUCHING, window.bounds())
    if refused.num_rows:
        wh.ingest(_build_rejections(refused, window))
    return int(rows.num_rows)


def widen_to_bucket(window: Window) -> Window:
    """Return the window from the start of a bucket: one that begins earlier is not read."""
    return Window(window.whole(BUCKET).start, window.end)


def derive_allocations(views: Views, window: Window) -> pa.Table:
    """Return the `allocation` rows of the window, as `write_allocations` would write them."""
    return _split(_derive_claims(views, window))[0]


def _split(claims: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Return the claims that hold a device, and those that take nothing."""
    is_refused = pc.equal(claims["attribution"], "refused")
    return claims.filter(pc.invert(is_refused)), claims.filter(is_refused)


def _build_rejections(refused: pa.Table, window: Window) -> list[Batch]:
    by_cluster: dict[str, list[Rejection]] = {}
    for row in refused.to_pylist():
        reason = f"an exporter or annotation gives it {row['device']}: {row['rule']}"
        by_cluster.setdefault(row["cluster"], []).append(
            Rejection(
                "allocation", row["namespace"], row["pod"], "device", reason, uid=row["pod_uid"]
            )
        )
    return [
        build_batch(rejections, cluster=cluster, source="warehouse", at=window.end)
        for cluster, rejections in by_cluster.items()
    ]


def _derive_claims(views: Views, window: Window) -> pa.Table:
    namespaces, labels = _read_exporters()
    rows = views.query(
        compose_query(STEPS),
        {**window.bounds(), "holder_namespaces": namespaces, "holder_labels": labels},
    )
    return rows.cast(get_schema("allocation"))


@cache
def _read_exporters() -> tuple[list[str], list[str]]:
    rows = read_table("warehouse", "allocation/holders.csv")
    return sorted({r["namespace"] for r in rows}), sorted({r["label"] for r in rows})
