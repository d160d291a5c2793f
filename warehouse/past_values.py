"""Read what columns of a pod were at a time, where they have had several values."""

from bisect import bisect_left
from collections.abc import Iterator

import msgspec

from fallow.protocols import Views
from fallow.rows import Row, decode_rows

_SQL = (
    "SELECT cluster, id, kind, epoch_us(valid_from) AS from_us, value FROM attribute_era"
    " WHERE kind LIKE 'pod.%' ORDER BY ALL"
)
_PodKey = tuple[str, str]
"""A cluster and the uid of a pod."""


class _ValueEra(Row, frozen=True):
    cluster: str
    id: str
    kind: str
    from_us: int
    value: str | None


class _PodPast(msgspec.Struct):
    times: list[int]
    values: list[dict[str, str | None]]


class PastValues:
    """The values of all pods over time: before its first observation a column has the first one."""

    def __init__(self, views: Views) -> None:
        eras: dict[_PodKey, list[_ValueEra]] = {}
        for row in decode_rows(views.query(_SQL), _ValueEra):
            eras.setdefault((row.cluster, row.id), []).append(row)
        self._pasts = {key: _build_past(of) for key, of in eras.items()}

    def find(self, key: _PodKey, at: int) -> dict[str, str | None]:
        """Return a pod's values just before a time, by column; none of columns with one value."""
        past = self._pasts.get(key)
        return {} if past is None else past.values[max(0, bisect_left(past.times, at) - 1)]

    def list_changes(self, key: _PodKey) -> Iterator[tuple[int, dict[str, str | None]]]:
        """Yield from when on a pod had which values, the first ones from its first observation."""
        past = self._pasts.get(key)
        return iter(()) if past is None else zip(past.times, past.values, strict=True)


def _build_past(eras: list[_ValueEra]) -> _PodPast:
    now = {era.kind.removeprefix("pod."): era.value or None for era in reversed(eras)}
    past = _PodPast([], [])
    for era in sorted(eras, key=lambda row: row.from_us):
        now = {**now, era.kind.removeprefix("pod."): era.value or None}
        past.times.append(era.from_us)
        past.values.append(now)
    return past
