"""Mark the 5-minute buckets that new samples speak in, so that the rollup makes them anew."""

from datetime import datetime, timedelta

import duckdb
import numpy as np
import pyarrow as pa

BUCKET = timedelta(minutes=5)
SPEAKS_FOR = 1.25
"""A look speaks for 1.25 intervals: a quarter of jitter is no gap."""

Marks = frozenset[tuple[str, datetime]]
"""(cluster, bucket) pairs known to be marked in the lake."""


def mark(cursor: duckdb.DuckDBPyConnection, rows: pa.Table, known: Marks) -> Marks:
    """Mark the buckets of sample rows, and the next one where a look reaches into it.

    Buckets in `known` cost nothing: most looks fall into a bucket that an earlier one marked.
    Returns `known` with the new ones.
    """
    step = int(BUCKET.total_seconds() * 1e6)
    ts = rows.column("ts").to_numpy().astype("datetime64[us]").astype(np.int64)
    seconds = np.nan_to_num(rows.column("interval_s").to_numpy().astype(np.float64))
    first = ts // step
    last = np.clip(
        (ts + (seconds * SPEAKS_FOR * 1e6).astype(np.int64) - 1) // step, first, first + 1
    )
    cluster = rows.column("cluster").combine_chunks()
    spoken = pa.table(
        {
            "cluster": pa.concat_arrays([cluster, cluster]),
            "bucket": pa.array(np.concatenate([first, last]) * step, pa.timestamp("us")),
        }
    )
    spoken = spoken.group_by(["cluster", "bucket"], use_threads=False).aggregate([])
    marks = zip(
        spoken.column("cluster").to_pylist(), spoken.column("bucket").to_pylist(), strict=True
    )
    new = frozenset(marks) - known
    if new:
        names, buckets = zip(*sorted(new), strict=True)
        cursor.register(
            "marks", pa.table({"cluster": names, "bucket": pa.array(buckets, pa.timestamp("us"))})
        )
        cursor.execute(
            "INSERT INTO dirty BY NAME SELECT * FROM marks ANTI JOIN dirty USING (cluster, bucket)"
        )
        cursor.unregister("marks")
    return known | new
