"""Report what was read from outside and refused: an object, a field of it, and the reason.

Collectors, imports and the warehouse's ingest write such rows; `doctor`, metrics and alerts show
them. A flood of them stays small: one batch lists `MOST_OF_NAMESPACE` objects of a kind and
namespace and `MOST_LISTED` in all, and counts the others in rows without a name.
"""

from collections import Counter
from collections.abc import Iterable
from datetime import datetime

import msgspec

from fallow.tables import Batch
from fallow.texts import escape_text

MOST_OF_NAMESPACE = 50
MOST_LISTED = 1_000
NOT_LISTED = "not listed one by one: too many"


class Rejection(msgspec.Struct, frozen=True, order=True):
    """One object that was refused; its texts may be unclean.

    `kind`: the table that its row was for. `namespace`, `node` and `workload` are empty where they
    are not known.
    """

    kind: str
    namespace: str
    name: str
    field: str
    reason: str
    uid: str = ""
    node: str = ""
    workload_kind: str = ""
    workload: str = ""
    count: int = 1
    devices: float = 0
    """Of a resource of no known kind: how many the object offers or requests."""


def build_batch(
    rejections: Iterable[Rejection], *, cluster: str, source: str, at: datetime
) -> Batch:
    """Return rows of the `rejection` table, bounded and with clean texts; `at` is aware UTC."""
    counts: Counter[Rejection] = Counter()
    for rejection in _list_bounded(sorted(rejections)):
        counts[msgspec.structs.replace(rejection, count=0)] += rejection.count
    rows, timestamp = [*counts], at.replace(tzinfo=None)
    texts = {
        name: [escape_text(getattr(row, name)) for row in rows]
        for name in Rejection.__struct_fields__
        if name not in {"count", "devices"}
    }
    return Batch.of(
        "rejection",
        {
            **texts,
            "cluster": [cluster] * len(rows),
            "source": [source] * len(rows),
            "first_seen": [timestamp] * len(rows),
            "last_seen": [timestamp] * len(rows),
            "count": [*counts.values()],
            "devices": [row.devices for row in rows],
        },
    )


def _list_bounded(rejections: Iterable[Rejection]) -> Iterable[Rejection]:
    """Yield rejections; those beyond the bounds without their names."""
    objects: set[tuple[str, str, str]] = set()
    of_namespace: Counter[tuple[str, str]] = Counter()
    for rejection in rejections:
        kind, namespace = rejection.kind, rejection.namespace
        identity = (kind, namespace, rejection.name)
        if identity not in objects:
            if len(objects) >= MOST_LISTED:
                yield Rejection(kind, "", "", "", NOT_LISTED, count=rejection.count)
                continue
            if of_namespace[kind, namespace] >= MOST_OF_NAMESPACE:
                yield Rejection(kind, namespace, "", "", NOT_LISTED, count=rejection.count)
                continue
            objects.add(identity)
            of_namespace[kind, namespace] += 1
        yield rejection
