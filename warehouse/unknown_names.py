"""List names that nothing explains, and nodes whose GPUs are counted differently."""

from datetime import datetime, timedelta

import pyarrow as pa

from fallow.protocols import Views
from warehouse.steps import load_step

RECENT = timedelta(days=1)
"""How long ago an object was read for the last time: inventories are read every few minutes."""
DAYS = 7
"""Days of data before a cluster's newest in which a device counts."""
MOST = 10_000


def read_unknown_names(views: Views, now: datetime, cluster: str | None = None) -> pa.Table:
    """Return a row per name, those of the most GPUs first; `now` is aware UTC.

    Columns: cluster, kind (resource, host, pod, owner, count), name, pods, nodes, gpus (how many of
    each it concerns), reason.
    """
    parameters = {"since": now - RECENT, "days": DAYS, "cluster": cluster, "most": MOST}
    return views.query(load_step("coverage/unknown_names"), parameters)
