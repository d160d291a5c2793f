"""Define kinds of phases: what a device and its host do in each (`kinds.csv`).

The columns of a kind are: `state`, its true state (`productive` becomes `low` where the device is
busy less than LOW_BELOW of the time); `computes`, whether kernels run; `stop_harms`, whether a stop
would lose work; `context`, whether a CUDA context is open; `sampled`, whether its kernels are
shorter than a scrape, so that gauges of one moment miss or overstate them. Then what the sensors
show: SM_ACTIVE per busy time, tensor, FP32 and DRAM activity per SM_ACTIVE, the standard deviation
of the busy time from tick to tick (-1 = the law `on_ratio`), bytes per second over PCIe per busy
time (per second where nothing computes), and the host's CPU cores and network bytes per second for
each GPU.

`spin` is a collective that waits for a rank that will never arrive: NCCL kernels keep the engine
100 % busy on a few SMs, at little power (telemetry-and-waste.md#signals, busy-hang). Numbers that
no public trace has, which is all but the distributions, are estimates; they lie inside the classes
of that section.
"""

from functools import cache

import msgspec
import numpy as np

from simulator.models import STATES, Codes, Marks
from simulator.work.chance import Array
from simulator.work.distributions import read

LOW_BELOW = 0.30
"""Engine busy less than this is `low` (the ledger's own default)."""


class Kinds(msgspec.Struct, frozen=True):
    """The columns of `kinds.csv` as arrays, by the kind's number."""

    names: tuple[str, ...]
    state: Codes
    computes: Marks
    stop_harms: Marks
    context: Marks
    sampled: Marks
    ratios: dict[str, Array]

    def number(self, name: str) -> int:
        """Return the number of a kind."""
        return _index_kinds()[name]


@cache
def _index_kinds() -> dict[str, int]:
    return {name: place for place, name in enumerate(read_kinds().names)}


@cache
def read_kinds() -> Kinds:
    """Return every kind of phase."""
    rows = read("kinds.csv")
    marks = {
        c: np.array([row[c] == "1" for row in rows])
        for c in ("computes", "stop_harms", "context", "sampled")
    }
    numbers = [c for c in rows[0] if c not in {"kind", "state", *marks}]
    return Kinds(
        names=tuple(row["kind"] for row in rows),
        state=np.array([STATES.index(row["state"]) for row in rows], np.int16),
        ratios={c: np.array([float(row[c]) for row in rows]) for c in numbers},
        **marks,
    )


@cache
def mark_kinds(names: tuple[str, ...]) -> Marks:
    """Return by the kind's number whether it is one of these."""
    marks = np.zeros(len(read_kinds().names), np.bool_)
    marks[[read_kinds().number(name) for name in names]] = True
    return marks
