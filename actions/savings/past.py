"""Idle stretches of the past, as they were known before an act."""

from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.resources import files
from typing import Self

import msgspec
import numpy as np
from numpy.typing import NDArray

from actions.savings.acted import Acted
from actions.savings.forecast import HOUR_S, Flags, Floats
from fallow.seams import Views

FRESH_S = HOUR_S
"""A stretch whose finding is older than this has ended."""
LEAST = 10
"""Stretches of a kind below which all kinds together are asked."""

Key = tuple[str, str, str, str]


class Past(msgspec.Struct, frozen=True):
    """Stretches, an array per column; seconds since the epoch."""

    keys: tuple[Key, ...]
    """Cluster, namespace, kind and name of the workload."""
    kinds: NDArray[np.str_]
    starts: Floats
    ends: Floats
    numbers: NDArray[np.int64]
    """Of the workloads: stretches of one have one number."""
    by_us: Flags
    """An act of ours ended it: it says only that it would have lasted at least so long."""

    @classmethod
    def of(cls, views: Views, acted: Sequence[Acted], now: datetime) -> Self:
        """Read what the idle analyzer found until now."""
        sql = files("actions.savings").joinpath("stretches.sql").read_text(encoding="utf-8")
        rows = views.query(sql, {"now": now, "fresh_s": FRESH_S}).to_pylist()
        keys = tuple(
            (r["cluster"], r["namespace"], r["workload_kind"], r["workload"]) for r in rows
        )
        ends = np.array([_epoch(r["end"]) for r in rows])
        stops: dict[Key, list[float]] = {}
        for one in acted:
            stops.setdefault(_key(one), []).append(one.at.timestamp())
        ours = [
            any(abs(end - at) <= FRESH_S for at in stops.get(key, ()))
            for key, end in zip(keys, ends.tolist(), strict=True)
        ]
        return cls(
            keys,
            np.array([key[2] for key in keys], dtype=np.str_),
            np.array([_epoch(r["start"]) for r in rows]),
            ends,
            np.unique(
                np.array(["/".join(key) for key in keys], dtype=np.str_), return_inverse=True
            )[1].astype(np.int64),
            np.array(ours, dtype=bool),
        )

    def before(self, one: Acted) -> tuple[Floats, Flags, float, NDArray[np.int64]]:
        """Return lengths (hours) of stretches before an act, which had ended, its own age, whose.

        A verdict looks back a day at most: its stretch is older than its finding says.
        """
        at = one.at.timestamp()
        begun = self.starts < at
        if np.count_nonzero(begun & (self.kinds == one.workload_kind)) >= LEAST:
            begun &= self.kinds == one.workload_kind
        starts, ends = self.starts[begun], self.ends[begun]
        lengths = (np.minimum(ends, at) - starts) / HOUR_S
        ended = (ends < at - FRESH_S) & ~self.by_us[begun]
        age = (at - min(self._since(one, at), (one.idle_since or one.at).timestamp())) / HOUR_S
        return lengths, ended, age, self.numbers[begun]

    def _since(self, one: Acted, at: float) -> float:
        """Return since when a workload had been idle when it was acted upon."""
        mine = _key(one)
        going = (self.starts < at) & (self.ends >= at - FRESH_S)
        return min(
            (float(self.starts[n]) for n in np.flatnonzero(going) if self.keys[n] == mine),
            default=at,
        )


def _key(one: Acted) -> Key:
    return one.cluster, one.namespace, one.workload_kind, one.workload


def _epoch(moment: datetime) -> float:
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
