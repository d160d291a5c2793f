"""Make the rows of idleness of whole hours, for the accounting step to store."""

from collections.abc import Iterator
from datetime import timedelta

import pyarrow as pa

from analyzers.idle import kept_rows
from analyzers.idle import samples as source
from analyzers.idle.holders import read_holders
from fallow.protocols import Views
from fallow.settings.idle import IdleSettings
from fallow.window import Window

AROUND = timedelta(microseconds=source.AROUND_US)


def derive_rows(views: Views, hours: Window, settings: IdleSettings) -> Iterator[pa.Table]:
    """Yield the rows of `idle_row` of whole hours, some devices at a time.

    Read: rollup_5m, signal, allocation, device, pod. The hours' signals must be written.
    """
    around = Window(hours.start - AROUND, hours.end + AROUND)
    chosen = source.plan_query(views, around, settings, is_bucketed=True)
    edges = kept_rows.list_edges(read_holders(views, around, chosen, settings))
    since, until = (round(at.timestamp() * 1e6) for at in (hours.start, hours.end))
    for samples in source.read_apart(views, chosen, settings):
        inside = kept_rows.select(samples, (samples.at >= since) & (samples.at < until))
        joined = kept_rows.join_buckets(inside, edges)
        yield kept_rows.build_table(joined, chosen.devices)
