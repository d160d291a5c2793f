"""A computation that never changes: what a processor second of this machine is worth.

It has the parts of what is measured: an aggregation and a window in DuckDB on two threads, and
Python's own objects.
"""

import duckdb

from benchmarks.stopwatch import Stopwatch

SQL = """
WITH reduced AS (
    SELECT hash(i) % 5000 AS device, i // 100_000 AS bucket, sum(sin(i)) AS total
    FROM range(12_000_000) AS counted(i) GROUP BY ALL
)
SELECT device, bucket, total - lag(total) OVER (PARTITION BY device ORDER BY bucket) AS step
FROM reduced
"""
OBJECTS = 400_000
ROUNDS = 3


def measure_reference() -> float:
    """Return the processor seconds of the least of three rounds."""
    return min(_measure_round() for _ in range(ROUNDS))


def _measure_round() -> float:
    watch = Stopwatch()
    with duckdb.connect(config={"threads": 2}) as engine:
        engine.execute(SQL).to_arrow_table()
    counted: dict[str, int] = {}
    for number in range(OBJECTS):
        key = f"device-{number % 997}"
        counted[key] = counted.get(key, 0) + number
    return watch.read().cpu_s
