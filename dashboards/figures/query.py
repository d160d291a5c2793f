"""Define the filters of every figure, and compose its SQL."""

import re
from typing import Any, Literal

import msgspec
import pyarrow as pa

from fallow.protocols import Views
from fallow.window import Window
from warehouse import pricing, totals
from warehouse.ledger import align_window
from warehouse.steps import compose_query

LATEST = "warehouse:findings/latest_findings"
"""The step with the findings of each analyzer's last run."""
PARSED = "parsed_findings"
"""The step with these findings of the window, their documents parsed."""
PARTS = "warehouse:findings/finding_parts"
"""The step with the part of each finding that is in the window."""
HANDLED = ("journal", "acted", "handled_findings")
"""The steps of the findings whose action took effect and was not reversed."""
ADVICE = (*HANDLED, LATEST, PARTS, PARSED, "advice")
"""The steps of the last runs' advice."""
ERAS = tuple(f"warehouse:{step}" for step in pricing.ERAS)
"""The steps of what each node was from when to when."""
NODE_SHARES = tuple(f"warehouse:{step}" for step in pricing.NODE_SHARES)
"""The steps of what commitments paid of each node's hours (`node_shares`), with `ERAS`."""
COVERED = "warehouse:coverage/covered_hours"
"""The step of how many seconds of each hour are accounted: by these a rate is divided."""
BY_DEVICE = (totals.BY_DEVICE, "paid")
"""The steps of what was paid: the ledger's rows, for what needs a device or a node's hours."""
BY_HOUR = (totals.BY_HOUR, "paid")
"""The same per hour without workload, node and device."""
BY_DAY = (totals.BY_DAY, "paid")
"""The same per day without device; `first_bucket` and `last_bucket` are hours."""
_NAMED = re.compile(r"\$([a-z_]+)")


class Filters(msgspec.Struct, frozen=True):
    """Filters of rows; None = all. Names are those of `fallow spend`.

    `view`: `loaded` = a GPU costs its part of the whole node, `gpu` = its GPU part only.
    """

    cluster: str | None = None
    team: str | None = None
    namespace: str | None = None
    model: str | None = None
    pool: str | None = None
    view: Literal["loaded", "gpu"] = "loaded"

    @property
    def named(self) -> dict[str, str]:
        """Return the filters that are set, as text."""
        rows = {name: getattr(self, name) for name in ("cluster", "team", "namespace")}
        rows |= {"model": self.model, "pool": self.pool}
        return {name: value for name, value in rows.items() if value is not None}


def run_query(
    views: Views,
    steps: tuple[str, ...],
    window: Window | None,
    filters: Filters = Filters(),  # noqa: B008  (frozen)
    **more: Any,
) -> pa.Table:
    """Run the steps of `dashboards/figures` as one statement and return its rows.

    Steps may name `$since` and `$until` (whole hours around the window, naive UTC), each field of
    the filters, and the parameters in `more`. After the steps `BY_DEVICE`, `BY_HOUR` or `BY_DAY`
    `paid` is what was paid under the names of `fallow spend`, in as few rows as the name says.
    """
    sql = compose_query(steps, "dashboards.figures")
    parameters = {**msgspec.structs.asdict(filters), **more}
    if window is not None:
        parameters |= align_window(window).bounds()
    return views.query(sql, {name: parameters[name] for name in {*_NAMED.findall(sql)}})
