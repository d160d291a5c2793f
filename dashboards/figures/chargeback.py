"""The chargeback statement: what each team pays, GPU only and fully loaded, with its shares.

GPU part + its part of the node = loaded; loaded + a share of what nobody held = total. The lines of
all teams sum to the bill, and to the same cents as `fallow spend --by team --share-unallocated`.
"""

import msgspec
import pyarrow as pa

from dashboards.figures.asking import Filters, ask
from fallow.seams import Views
from fallow.window import Window

STEPS = ("paid", "chargeback/owned", "chargeback/shares", "chargeback/teams")


def teams(views: Views, window: Window, filters: Filters) -> pa.Table:
    """Return a line per team, the dearest first and `(platform)` last.

    Columns: team, gpu_hours, used_gpu_hours, idle_gpu_hours, unpriced_gpu_hours (GPU h), usd_gpu,
    usd_node, usd_loaded (their sum), idle_usd (part of it), shared_usd (of what nobody held;
    the platform's is what it gave), total_usd, total_usd_gpu. Null dollars = no price. Of the
    filters only the cluster counts: who pays what is a matter of everybody.
    """
    return ask(views, STEPS, window, Filters(cluster=filters.cluster))


def lines(views: Views, window: Window, filters: Filters, team: str) -> pa.Table:
    """Return what one team held: a line per workload, pool and model, the dearest first.

    Columns: cluster, namespace, workload, pool, model, gpu_hours, used_gpu_hours, idle_gpu_hours,
    usd_gpu, usd_node, usd_loaded, usd_per_gpu_hour, price_as_of. They sum to the team's usd_loaded.
    """
    only = msgspec.structs.replace(filters, team=team, namespace=None, model=None, pool=None)
    return ask(views, ("paid", "chargeback/lines"), window, only)
