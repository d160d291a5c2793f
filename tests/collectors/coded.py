"""Rows of series that are not coded yet."""

from collections.abc import Sequence
from typing import Any

from collectors import assemble as assembling
from collectors.assemble import Assembled
from collectors.series import Series
from collectors.series_codes import SeriesCatalog


def assemble(series: Sequence[Series], index: Any, ts: Any, values: Any, **how: Any) -> Assembled:
    """Assemble rows; `index[i]` is the index in `series` of value `i`."""
    catalog = SeriesCatalog()
    return assembling.assemble(catalog, catalog.code(series).take(index), ts, values, **how)
