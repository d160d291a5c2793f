"""Idle stretches of the past, as they were known before an act."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Self

import msgspec
import numpy as np
from numpy.typing import NDArray

from actions.savings.forecast import HOUR_S, Flags, Floats
from actions.savings.measured_action import MeasuredAction
from fallow.protocols import Views
from fallow.resources import read_text

FRESH_S = HOUR_S
"""A stretch whose finding is older than this has ended."""
MIN_STRETCHES = 10
"""Minimum stretches of one kind; with fewer, those of all kinds are used."""

WorkloadKey = tuple[str, str, str, str]


class IdleHistory(msgspec.Struct, frozen=True):
    """Stretches, an array per column; seconds since the epoch."""

    keys: tuple[WorkloadKey, ...]
    """Cluster, namespace, kind and name of the workload."""
    kinds: NDArray[np.str_]
    starts: Floats
    ends: Floats
    numbers: NDArray[np.int64]
    """Number of the workload: all stretches of one workload have the same number."""
    by_us: Flags
    """True: an act of ours ended it, so its length is a lower bound."""

    @classmethod
    def of(cls, views: Views, actions: Sequence[MeasuredAction], now: datetime) -> Self:
        """Read the findings of the idle analyzer until now."""
        sql = read_text("actions.savings", "stretches.sql")
        rows = views.query(sql, {"now": now, "fresh_s": FRESH_S}).to_pylist()
        keys = tuple(
            (r["cluster"], r["namespace"], r["workload_kind"], r["workload"]) for r in rows
        )
        ends = np.array([_convert_epoch(r["end"]) for r in rows])
        stops: dict[WorkloadKey, list[float]] = {}
        for action in actions:
            stops.setdefault(_build_key(action), []).append(action.at.timestamp())
        ended_by_us = [
            any(abs(end - at) <= FRESH_S for at in stops.get(key, ()))
            for key, end in zip(keys, ends.tolist(), strict=True)
        ]
        return cls(
            keys,
            np.array([key[2] for key in keys], dtype=np.str_),
            np.array([_convert_epoch(r["start"]) for r in rows]),
            ends,
            np.unique(
                np.array(["/".join(key) for key in keys], dtype=np.str_), return_inverse=True
            )[1].astype(np.int64),
            np.array(ended_by_us, dtype=bool),
        )

    def before(self, action: MeasuredAction) -> tuple[Floats, Flags, float, NDArray[np.int64]]:
        """Return stretches before an act: lengths (hours), ended or not, its own age, workloads.

        A verdict covers at most one day: its stretch is older than its finding shows.
        """
        at = action.at.timestamp()
        is_earlier = self.starts < at
        if np.count_nonzero(is_earlier & (self.kinds == action.workload_kind)) >= MIN_STRETCHES:
            is_earlier &= self.kinds == action.workload_kind
        starts, ends = self.starts[is_earlier], self.ends[is_earlier]
        lengths = (np.minimum(ends, at) - starts) / HOUR_S
        ended = (ends < at - FRESH_S) & ~self.by_us[is_earlier]
        age = (
            at - min(self._since(action, at), (action.idle_since or action.at).timestamp())
        ) / HOUR_S
        return lengths, ended, age, self.numbers[is_earlier]

    def _since(self, action: MeasuredAction, at: float) -> float:
        """Return since when a workload had been idle at the act."""
        key = _build_key(action)
        is_current = (self.starts < at) & (self.ends >= at - FRESH_S)
        return min(
            (float(self.starts[n]) for n in np.flatnonzero(is_current) if self.keys[n] == key),
            default=at,
        )


def _build_key(action: MeasuredAction) -> WorkloadKey:
    return action.cluster, action.namespace, action.workload_kind, action.workload


def _convert_epoch(timestamp: datetime) -> float:
    return (timestamp if timestamp.tzinfo else timestamp.replace(tzinfo=UTC)).timestamp()
