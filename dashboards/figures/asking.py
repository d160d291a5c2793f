"""What every figure is asked with, and how its SQL is put together."""

import re
from typing import Any, Literal

import msgspec
import pyarrow as pa

from fallow.seams import Views
from fallow.window import Window
from warehouse.ledger import aligned
from warehouse.steps import compose

PLATFORM = "(platform)"
"""Who owns what nobody held."""
_NAMED = re.compile(r"\$([a-z_]+)")


class Filters(msgspec.Struct, frozen=True):
    """Whose rows; None = everybody's. Names are those of `fallow spend`.

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
        """Return the filters that are set, as people read them."""
        rows = {name: getattr(self, name) for name in ("cluster", "team", "namespace")}
        rows |= {"model": self.model, "pool": self.pool}
        return {name: value for name, value in rows.items() if value is not None}


def ask(
    views: Views,
    steps: tuple[str, ...],
    window: Window | None,
    filters: Filters = Filters(),  # noqa: B008  (frozen)
    **more: Any,
) -> pa.Table:
    """Run the steps of `dashboards/figures` as one statement and return its rows.

    Steps may name `$since` and `$until` (whole hours around the window, naive UTC), each field of
    the filters, and whatever `more` brings. A first step `paid` gives the ledger's rows under the
    names people ask by.
    """
    sql = compose(steps, "dashboards.figures")
    known = {**msgspec.structs.asdict(filters), **more}
    if window is not None:
        known |= aligned(window).bounds()
    return views.query(sql, {name: known[name] for name in {*_NAMED.findall(sql)}})
