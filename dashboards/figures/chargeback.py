"""Compute the chargeback statement: what each team pays, GPU only and fully loaded.

GPU part + its part of the node = loaded; loaded + a share of the unallocated cost = total. The
lines of all teams sum to the bill, to the same cents as `fallow spend --by team
--share-unallocated`.
"""

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

import msgspec
import pyarrow as pa

from dashboards.figures import spend
from dashboards.figures.query import BY_DAY, BY_HOUR, Filters, run_query
from fallow import money
from fallow.protocols import Views
from fallow.window import Window

PARTS = ("usd_gpu", "usd_node", "shared_usd")
STEPS = (*BY_HOUR, "chargeback/owned", "chargeback/shares", "chargeback/teams")


def read_teams(views: Views, window: Window, filters: Filters) -> pa.Table:
    """Return a line per team, the most expensive first and `(platform)` last.

    Columns: team, gpu_hours, used_gpu_hours, idle_gpu_hours, unpriced_gpu_hours (GPU h), busy_pct
    and effective_pct (of its allocated hours; null = nothing allocated, not measured), usd_gpu,
    usd_node, usd_loaded (their sum), idle_usd (part of it), shared_usd (its share of the
    unallocated cost; the platform's is what it passed on), total_usd, total_usd_gpu. Null dollars =
    no price. Only the filter of clusters applies, because each team's share depends on all teams.
    """
    return run_query(views, STEPS, window, Filters(cluster=filters.cluster))


def read_statement(views: Views, window: Window, filters: Filters) -> pa.Table:
    """Return the rows of `read_teams` in cents that add up, row by row and in their sums.

    usd_loaded and idle_usd are the row's cents in `fallow spend --by team`, usd_gpu those with
    `--view gpu`, total_usd those with `--share-unallocated`. usd_gpu + usd_node = usd_loaded; +
    shared_usd = total_usd.
    """
    of_cluster = Filters(cluster=filters.cluster)
    rows = read_teams(views, window, of_cluster)
    if not rows.num_rows:
        return rows
    exact = {name: rows[name].to_pylist() for name in rows.column_names}
    own = spend.read_team_bills(views, window, of_cluster)
    of_gpus = spend.read_team_bills(views, window, msgspec.structs.replace(of_cluster, view="gpu"))
    loaded, idle = (list(column) for column in zip(*map(own.get, exact["team"]), strict=True))
    gpu = [
        usd if node == 0 else of_gpus[team][0]
        for team, usd, node in zip(exact["team"], loaded, exact["usd_node"], strict=True)
    ]
    shared = money.round_shares(exact["usd_loaded"], exact["shared_usd"], loaded)
    totals = zip(exact["total_usd_gpu"], exact["usd_gpu"], strict=True)
    shared_gpu = [None if total is None else total - usd for total, usd in totals]
    return spend.set_columns(
        rows,
        {
            "usd_loaded": loaded,
            "idle_usd": idle,
            "usd_gpu": gpu,
            "usd_node": _add(loaded, [usd and -usd for usd in gpu]),
            "shared_usd": shared,
            "total_usd": _add(loaded, shared),
            "total_usd_gpu": _add(gpu, money.round_shares(exact["usd_gpu"], shared_gpu, gpu)),
        },
    )


def _add(usd: Sequence[Decimal | None], more: Sequence[Decimal | None]) -> list[Decimal | None]:
    return [money.sum_known(row) for row in zip(usd, more, strict=True)]


def read_lines(views: Views, window: Window, filters: Filters, team: str) -> pa.Table:
    """Return a team's allocations: a line per workload, pool and model, the most expensive first.

    Columns: cluster, namespace, workload, pool, model, gpu_hours, used_gpu_hours, idle_gpu_hours,
    usd_gpu, usd_node, usd_loaded, usd_per_gpu_hour, busy_pct, effective_pct, price_as_of. They
    sum to the team's usd_loaded.
    """
    return run_query(views, (*BY_DAY, "chargeback/lines"), window, _select_team(filters, team))


def read_statement_lines(views: Views, window: Window, filters: Filters, team: str) -> pa.Table:
    """Return the rows of `read_lines` in cents that add up, row by row and to the team's line.

    Under a filter of namespace, model or pool they sum to their own total.
    """
    rows = read_lines(views, window, filters, team)
    rows = _round_columns(rows, _find_line(views, window, filters, team), ("usd_gpu", "usd_node"))
    parts = zip(rows["usd_gpu"].to_pylist(), rows["usd_node"].to_pylist(), strict=True)
    return spend.set_columns(rows, {"usd_loaded": [money.sum_known(row) for row in parts]})


def read_workloads(views: Views, window: Window, filters: Filters, team: str) -> pa.Table:
    """Return a team's allocations: a row per workload, the most expensive first.

    Columns: cluster, namespace, workload, model (all of them), gpu_hours, used_gpu_hours,
    idle_gpu_hours, usd_gpu, usd_loaded, usd_per_gpu_hour, busy_pct, effective_pct (null = not
    measured). Dollars are cents that sum to the team's line, as `read_statement_lines` do.
    """
    chosen = _select_team(filters, team)
    rows = run_query(views, (*BY_DAY, "chargeback/workloads"), window, chosen)
    line = _find_line(views, window, filters, team)
    return _round_columns(rows, line, ("usd_gpu", "usd_loaded"))


def _find_line(views: Views, window: Window, filters: Filters, team: str) -> dict[str, Any]:
    """Return a team's line of the statement; empty = a filter leaves out a part of it."""
    if not filters.namespace is filters.model is filters.pool is None:
        return {}
    teams: list[dict[str, Any]] = read_statement(views, window, filters).to_pylist()
    return next((row for row in teams if row["team"] == team), {})


def _round_columns(rows: pa.Table, line: Mapping[str, Any], names: Sequence[str]) -> pa.Table:
    cents = {n: money.apportion_column(rows[n].to_pylist(), line.get(n)) for n in names}
    return spend.set_columns(rows, cents)


def _select_team(filters: Filters, team: str) -> Filters:
    return msgspec.structs.replace(filters, team=team, namespace=None, model=None, pool=None)
