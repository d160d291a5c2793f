"""Build batches from inventory rows (nodes, pods, quotas, polls).

Inventory is small, at most one row per pod of the fleet, so rows are built one by one. Samples are
never built this way.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any

import msgspec
import pyarrow as pa

from fallow.tables import Batch, get_schema

BATCH_ROWS = 5000


def build_batches(table: str, rows: Iterable[Mapping[str, Any]]) -> Iterator[Batch]:
    """Yield batches of at most `BATCH_ROWS` rows; a row's absent columns become null."""
    chunk: list[Mapping[str, Any]] = []
    for row in rows:
        chunk.append(row)
        if len(chunk) == BATCH_ROWS:
            yield Batch(table, pa.Table.from_pylist(chunk, schema=get_schema(table)))
            chunk = []
    if chunk:
        yield Batch(table, pa.Table.from_pylist(chunk, schema=get_schema(table)))


def document(value: object) -> str | None:
    """Write a value as JSON with sorted keys; an empty or absent one is null."""
    if not value:
        return None
    return msgspec.json.encode(value, order="sorted").decode()


def build_scrape_row(
    collector: str,
    target: str,
    *,
    cluster: str,
    start: datetime,
    end: datetime,
    samples: int | None = None,
    rejected: int = 0,
    error: str | None = None,
) -> dict[str, Any]:
    """Return one row of the `scrape` table; an error means that the poll or scrape failed."""
    return {
        "cluster": cluster,
        "ts": start,
        "collector": collector,
        "target": target,
        "until": end,
        "up": error is None,
        "seconds": (end - start).total_seconds(),
        "samples": samples,
        "rejected": rejected,
        "error": error,
    }


def derive_pod_uid(cluster: str, namespace: str, pod: str, created: float | None = None) -> str:
    """Return the stable UID of a pod whose source has none.

    `created` (seconds since 1970) distinguishes pods that had the same name one after another.
    Where it is not known, the UID depends on the name only. `warehouse/allocation/lives.sql`
    handles both.
    """
    parts_named = [cluster, namespace, pod, *([] if created is None else [f"{created:.0f}"])]
    return hashlib.sha256("/".join(parts_named).encode()).hexdigest()[:32]
