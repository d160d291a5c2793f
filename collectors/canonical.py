"""Map any vendor's series to Fallow's columns, and assemble rows from many of them.

resolve(metric, labels)          -> Series | None
assemble(series, index, ts, ...) -> Assembled (batches of `sample` and `holding`, rejects)
"""

from collectors.assemble import Assembled, CodedSeries, SeriesCatalog, assemble
from collectors.series import Series, resolve

__all__ = ["Assembled", "CodedSeries", "Series", "SeriesCatalog", "assemble", "resolve"]
