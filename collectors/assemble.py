"""Assemble wide rows from many values of many series: one row per timestamp and device.

All data are arrays, because one scrape of a fleet is a quarter of a million values. A value that is
blank (a vendor's sentinel), NaN, infinite or outside its legal range becomes null and is counted.
"""

import msgspec
import numpy as np
import numpy.typing as npt

from collectors.frame import Frame
from collectors.series_codes import Bools, CodedSeries, Floats, SeriesCatalog
from fallow.tables import Batch


class Assembled(msgspec.Struct, frozen=True):
    """Batches (`sample`, then `holding` where devices are shared), and which values were rejected.

    `refused` and `clipped` have a flag per value, in the order of the values.
    """

    batches: list[Batch]
    rejected: int
    refused: Bools
    clipped: Bools


def assemble(
    catalog: SeriesCatalog,
    coded: CodedSeries,
    ts: npt.NDArray[np.datetime64],
    values: Floats,
    *,
    cluster: str,
    interval_s: float,
    source: str,
) -> Assembled:
    """Assemble wide rows from values, each of a series of the catalog.

    One row per timestamp and device. Copies of a device's value for several pods (time slicing)
    become one `sample` row without pod, whose `sharers` counts them, and a `holding` row per pod.
    """
    if not len(values):
        return Assembled([], 0, np.zeros(0, np.bool_), np.zeros(0, np.bool_))
    catalog.build_table()
    frame = Frame(catalog, coded, ts, values)
    constants = {"cluster": cluster, "source": source, "interval_s": interval_s}
    batches = [b for b in (frame.samples(constants), frame.holdings(constants)) if b]
    return Assembled(batches, int(frame.refused.sum()), frame.refused, frame.clipped)
