"""Do at the start what the first page would do: import modules, open the warehouse, read filters.

Modules are imported before the first request is answered. The warehouse is opened in a thread of
its own, so that a store that does not answer delays nobody. Figures of a window, and the audits of
its days, are read when somebody opens a page.
"""

import logging
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib import import_module
from typing import Any

from dashboards import active_settings, app, charts, data, filters
from dashboards.figures import extent as extents
from fallow.errors import FallowError
from warehouse import coverage

log = logging.getLogger("fallow.dashboard")


@asynccontextmanager
async def start_app(_app: Any) -> AsyncIterator[None]:
    """Warm the app up while its server starts."""
    import_pages()
    threading.Thread(target=read_first, name="warm-up", daemon=True).start()
    yield


def import_pages() -> None:
    """Import every page, and what charts import when the first one is drawn."""
    for name in app.list_names():
        app.get_title(name)
    # Altair reads a pandas that is loaded, also one that another part of the page still imports.
    import_module("pandas")
    charts.draw_ranked_bars([{"name": "a", "usd": 1.0}]).to_dict()


def read_first() -> None:
    """Open the warehouse and read what every page shows; failures wait for a page."""
    settings = active_settings.get_settings()
    try:
        extent_known = data.query(extents.read_extent)
        if extent_known is None:
            return
        filters.list_names(extent_known)
        data.query(coverage.find_newest, settings.ledger.max_lag, None)
        data.query(coverage.read_ages, None)
    except FallowError as error:
        log.info("nothing is read in advance", extra={"why": error.message})
