"""Show the last analysis' advice, the largest saving first; no GPU-hour is saved twice."""

import pyarrow as pa

from dashboards.figures.query import ADVICE, Filters, run_query
from fallow.protocols import Views
from fallow.window import Window


def list_advice(views: Views, window: Window, filters: Filters) -> pa.Table:
    """Return a row per finding that would save something in the window, the most expensive first.

    Columns: id, analyzer, kind, cluster, team, workload, evidence, verb (the advice that saves
    most), effort, saving, gpu_hours (GPU h) and usd it would save on top of those before it in the
    waterfall; null dollars = no price. Rows sum to `waterfall.savings_of`.
    """
    return run_query(views, (*ADVICE, "first_advice", "recommendations/listed"), window, filters)
