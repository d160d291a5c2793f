"""Prepare the hourly rows of quotas: parents, waiting demand, MIG profiles, refusals."""

import polars as pl

MIG = "/mig-"


def select_profile(rows: pl.DataFrame, resource: str) -> pl.DataFrame:
    """Return the rows of a MIG profile; of whole GPUs for every other resource."""
    return rows.filter(pl.col("profile") == (resource.partition(MIG)[2] if MIG in resource else ""))


def select_refused(rows: pl.DataFrame, cluster: str, kind: str, resource: str) -> pl.DataFrame:
    """Return what ResourceQuotas refused of a resource; with other kinds pods wait instead."""
    mine = (pl.col("cluster") == cluster) & (pl.col("resource") == resource)
    return rows.filter(mine & pl.lit(kind == "ResourceQuota"))


def drop_parents(quotas: pl.DataFrame) -> pl.DataFrame:
    """Drop queues that only have child queues: their quota is their children's."""
    flat = quotas.with_columns(pl.col("parent").fill_null(""))
    parents = flat.filter((pl.col("parent") != "") & (pl.col("kind") != "ClusterQueue")).select(
        "cluster", "kind", name="parent"
    )
    children = flat.join(parents.unique(), on=["cluster", "kind", "name"], how="anti")
    # An object that was moved belongs to its present parent.
    keys = ["cluster", "kind", "namespace", "name", "resource", "flavor"]
    return (
        children.sort("hour").with_columns(pl.col("parent").last().over(keys)).sort(*keys, "hour")
    )


def add_waiting(quotas: pl.DataFrame, local: pl.DataFrame) -> pl.DataFrame:
    """Add to ClusterQueues the waiting demand of their LocalQueues, by nominal quota."""
    waits = (
        local.filter(pl.col("waiting").is_not_null())
        .group_by("cluster", "resource", "hour", name="parent")
        .agg(pl.col("waiting").sum().alias("local"))
        .with_columns(kind=pl.lit("ClusterQueue"))
    )
    keys = ["cluster", "kind", "name", "resource", "hour"]
    whole = pl.col("nominal").sum().over(keys)
    return quotas.join(waits, on=keys, how="left").with_columns(
        waiting=pl.when(pl.col("kind") == "ClusterQueue")
        .then(
            pl.col("local")
            * pl.when(whole > 0).then(pl.col("nominal") / whole).otherwise(1 / pl.len().over(keys))
        )
        .otherwise(pl.col("waiting"))
    )


def read_routes(local: pl.DataFrame) -> dict[tuple[str, str, str], str]:
    """Return the ClusterQueue of each LocalQueue."""
    rows = local.filter(pl.col("parent").is_not_null()).sort("hour")
    return {
        (c, ns, name): parent
        for c, ns, name, parent in rows.select("cluster", "namespace", "name", "parent").iter_rows()
    }
