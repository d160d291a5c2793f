"""Read quotas, demand and the ledger into groups of queues that could share, hour by hour."""

from collections.abc import Mapping
from datetime import timedelta

import msgspec
import numpy as np
import numpy.typing as npt
import polars as pl

from analyzers.arrays import Doubles
from analyzers.queue_demand import convert_to_hour, read_demand
from analyzers.quota.cohorts import CohortTrees, build_trees
from analyzers.quota.groups import FreeGpus, QuotaGroup, QuotaGroups
from analyzers.quota.rows import GpuNodesTotal, read_capacity, read_table
from analyzers.quota.tables import (
    MIG,
    add_waiting,
    drop_parents,
    read_routes,
    select_profile,
    select_refused,
)
from analyzers.quota.usable_gpus import count_usable
from fallow.models import Subject
from fallow.protocols import Views
from fallow.window import Window
from warehouse.steps import VALUE_ERAS

LENDING = {
    "ClusterQueue", "Queue.volcano", "Queue.kai", "ElasticQuota", "ElasticQuota.koordinator",
    "ElasticQuota.nos",
}  # fmt: skip
"""Kinds whose unused quota others may use meanwhile; a ClusterQueue only within a cohort."""
BY_QUEUE = {"Queue.volcano", "Queue.kai"}
"""Kinds whose pods name the object as their queue; other kinds apply to a namespace."""
_LOCAL, _COHORT = "LocalQueue", "Cohort"

SOME_REFUSED = (
    "pods that a ResourceQuota refused were never made: of each owner with such events, one "
    "pod's request is counted"
)
NONE_REFUSED = (
    "pods that a ResourceQuota refused were never made: no event tells of any, what they asked is "
    "unknown"
)


def read_groups(views: Views, window: Window, history: timedelta) -> QuotaGroups:
    """Return the groups of quotas with polls in the window, with their history."""
    span = {"since": min(window.start, window.end - history), "until": window.end}
    quotas = read_table(views, "quota/quotas", span=span)
    if quotas.is_empty():
        return QuotaGroups((), ())
    pods = read_demand(views, span)
    bounds = {"since": window.start, "until": window.end}
    ledger = read_table(views, VALUE_ERAS, "quota/queue_hours", span=bounds)
    sizes = read_capacity(views, bounds)
    several = any(size.models > 1 for size in sizes.values())
    refused = read_table(views, "quota/refused_gpus", span=bounds)
    takes = count_usable(views, bounds, refused) if several else {}
    local, cohorts = (quotas.filter(pl.col("kind") == kind) for kind in (_LOCAL, _COHORT))
    quotas = quotas.filter(~pl.col("kind").is_in([_LOCAL, _COHORT]))
    above = build_trees(cohorts)
    quotas = above.rooted(add_waiting(quotas, local))
    routes = read_routes(local)
    groups, unjudged = [], []
    keys = ["cluster", "kind", "parent", "resource", "flavor"]
    for key, rows in drop_parents(quotas).group_by(keys, maintain_order=True):
        cluster, kind, parent, resource, flavor = (str(k) for k in key)
        late = rows.filter(pl.col("hour") >= convert_to_hour(window.start))
        unset = late.group_by("namespace", "name").agg(pl.col("nominal").count())
        for namespace, name, count in unset.sort("namespace", "name").iter_rows():
            if not count:
                about = Subject(cluster, namespace, "Quota" if namespace else "Queue", name)
                unjudged.append((about, f"its {kind} has no nominal quota of {resource}"))
        with_nominal = rows.join(
            unset.filter(pl.col("nominal") > 0), on=["namespace", "name"], how="semi"
        )
        if with_nominal.is_empty():
            continue
        lends = kind in LENDING and (kind != "ClusterQueue" or bool(parent))
        place = _GroupKey(cluster, kind, parent, f"{resource}@{flavor}" if flavor else resource)
        groups.append(
            _build_group(
                place,
                with_nominal,
                window,
                select_profile(pods, resource),
                select_profile(ledger, resource),
                select_refused(refused, cluster, kind, resource),
                routes,
                sizes,
                None if MIG in resource else takes.get(cluster),
                above,
                lends=lends,
            )
        )
    return QuotaGroups(tuple(groups), tuple(unjudged))


class _GroupKey(msgspec.Struct, frozen=True):
    cluster: str
    kind: str
    parent: str
    resource: str


def _build_group(  # noqa: PLR0917  (the one place where everything meets)
    place: _GroupKey,
    rows: pl.DataFrame,
    window: Window,
    pods: pl.DataFrame,
    ledger: pl.DataFrame,
    refused: pl.DataFrame,
    routes: Mapping[tuple[str, str, str], str],
    sizes: Mapping[str, GpuNodesTotal],
    takes: Mapping[int, float] | None,
    above: CohortTrees,
    *,
    lends: bool,
) -> QuotaGroup:
    members = tuple(rows.select("namespace", "name").unique().sort("namespace", "name").iter_rows())
    number = {member: n for n, member in enumerate(members)}
    hours = np.sort(rows["hour"].unique().to_numpy())
    shape = len(hours), len(members)

    def spread(table: pl.DataFrame, value: str, empty: float = 0.0) -> Doubles:
        matrix = np.full(shape, empty)
        here = table.filter(pl.col("column") >= 0)
        at = np.searchsorted(hours, here["hour"].to_numpy())
        present = (at < len(hours)) & (
            hours[np.minimum(at, len(hours) - 1)] == here["hour"].to_numpy()
        )
        values = here[value].cast(pl.Float64).fill_null(np.nan).to_numpy()
        cells = at[present], here["column"].to_numpy()[present]
        if empty:
            matrix[cells] = np.where(np.isnan(values[present]), empty, values[present])
        else:
            np.add.at(matrix, cells, values[present])
        return matrix

    def placed(table: pl.DataFrame) -> pl.DataFrame:
        """Return the column of rows by namespace and queue; -1 = no member's."""
        mine = table.filter(pl.col("cluster") == place.cluster)
        pairs = mine.select("namespace", "queue").unique()
        column = [
            number.get(
                _find_member(place, ns, q, routes),
                number.get((ns, _find_own_quota(members, ns)), -1),
            )
            for ns, q in pairs.iter_rows()
        ]
        named = pairs.with_columns(column=pl.Series(column, dtype=pl.Int64))
        return mine.join(named, on=["namespace", "queue"], nulls_equal=True)

    own = rows.with_columns(
        column=pl.struct("namespace", "name").map_elements(
            lambda m: number[m["namespace"], m["name"]], return_dtype=pl.Int64
        ),
    )
    by_pods = placed(pods)
    placed_pods = by_pods.filter(pl.col("placed"))
    turned_away = spread(_number_columns(refused, number), "gpus")
    queued = spread(by_pods.filter(~pl.col("placed")), "gpus") + turned_away
    counted = spread(placed_pods, "gpus")
    reports_use = own["used"].count() > 0
    used = spread(own.with_columns(pl.col("used").fill_null(0)), "used") if reports_use else counted
    reports_waiting = own["waiting"].count() > 0
    waiting = (
        spread(own.with_columns(pl.col("waiting").fill_null(0)), "waiting")
        if reports_waiting
        else queued
    )
    by_ledger = placed(ledger)
    unpriced = by_ledger.with_columns(
        usd=pl.when(pl.col("unpriced") > 0).then(None).otherwise(pl.col("idle_usd").fill_null(0))
    )
    notes = () if reports_use else ("the quota does not say what is used: its pods' requests are",)
    if place.kind == "ResourceQuota":
        notes = (*notes, SOME_REFUSED if turned_away.any() else NONE_REFUSED)
    nominal = spread(own.with_columns(pl.col("nominal").fill_null(0)), "nominal")
    limit = spread(own, "limit", np.inf)
    tree = None
    if place.kind == "ClusterQueue" and place.parent:
        lending = spread(own, "lending", np.inf)
        parents = own.sort("hour").group_by("column").agg(pl.col("cohort").last()).sort("column")
        tree = above.over(
            place.cluster,
            parents["cohort"].to_list(),
            place.resource,
            hours,
            nominal,
            limit,
            lending,
        )
    return QuotaGroup(
        place.cluster,
        place.kind,
        place.parent,
        place.resource,
        lends,
        members,
        hours,
        hours >= convert_to_hour(window.start),
        nominal,
        limit,
        np.maximum(used, 0),
        np.maximum(waiting, 0),
        np.maximum(counted, 0),
        np.maximum(queued, 0),
        spread(by_ledger, "idle"),
        spread(unpriced, "usd"),
        np.maximum(spread(placed_pods, "cpu"), 0),
        np.maximum(spread(placed_pods, "memory"), 0),
        _build_money(
            ledger.filter(pl.col("cluster") == place.cluster),
            hours,
            sizes.get(place.cluster),
            # Demand outside of pods does not name a model.
            None if reports_waiting else takes,
        ),
        notes,
        tree,
    )


def _number_columns(rows: pl.DataFrame, number: Mapping[tuple[str, str], int]) -> pl.DataFrame:
    """Return the column of rows by namespace and quota name; -1 = no member's."""
    column = [number.get(pair, -1) for pair in rows.select("namespace", "name").iter_rows()]
    return rows.with_columns(column=pl.Series(column, dtype=pl.Int64))


def _find_member(
    place: _GroupKey, namespace: str, queue: str, routes: Mapping[tuple[str, str, str], str]
) -> tuple[str, str]:
    if place.kind == "ClusterQueue":
        return "", routes.get((place.cluster, namespace, queue), "")
    if place.kind in BY_QUEUE:
        return "", queue
    return namespace, queue


def _find_own_quota(members: tuple[tuple[str, str], ...], namespace: str) -> str:
    """Return the name of a namespace's own quota; of several, the first by name."""
    return next((name for ns, name in members if ns and ns == namespace), "")


def _build_money(
    ledger: pl.DataFrame,
    hours: npt.NDArray[np.int64],
    size: GpuNodesTotal | None,
    takes: Mapping[int, float] | None,
) -> FreeGpus:
    sums = ledger.group_by("hour").agg(pl.col("free", "free_usd", "unpriced").sum()).sort("hour")
    free = np.zeros(len(hours))
    at = np.searchsorted(sums["hour"].to_numpy(), hours)
    if sums.height:
        at = np.minimum(at, sums.height - 1)
        present = sums["hour"].to_numpy()[at] == hours
        free = np.where(present, sums["free"].to_numpy()[at], 0.0)
    if takes is not None:
        free = np.minimum(free, np.array([takes.get(int(h), 0.0) for h in hours]))
    total = float(sums["free"].sum())
    priced = total > 0 and not sums["unpriced"].sum()
    usd_h = float(sums["free_usd"].sum()) / total if priced else None
    return FreeGpus(
        free,
        usd_h,
        bool(sums.height),
        size.gpus if size else 0.0,
        (size.cpu or 0.0) if size else 0.0,
        (size.memory or 0.0) if size else 0.0,
        size.models if size else 0,
        takes is not None,
    )
