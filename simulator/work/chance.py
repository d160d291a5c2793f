"""Draw random numbers that depend only on a key and a position, never on earlier draws.

Philox is a counter-based generator: the numbers of tick k are its k-th blocks. So cutting a stretch
of time into blocks, or drawing twice, changes nothing.
"""

import threading
import zlib
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from simulator.models import TICK_S

Array = npt.NDArray[np.float64]
Words = npt.NDArray[np.uint64]

WORDS = 4
"""64-bit words that Philox makes from one counter."""


class _Own(threading.local):
    """One bit generator per thread: setting its position is cheaper than creating one."""

    def __init__(self) -> None:
        self.bits = np.random.Philox(key=0)

    def at(self, key: Words, counter: int, use: int = 0) -> np.random.Philox:
        self.bits.state = {
            "bit_generator": "Philox",
            "state": {"counter": np.array([counter, 0, use, 0], np.uint64), "key": key},
            "buffer": np.zeros(WORDS, np.uint64),
            "buffer_pos": WORDS,
            "has_uint32": 0,
            "uinteger": 0,
        }
        return self.bits


_own = _Own()

BESIDE_TICKS = 1
"""The third number of the counter of all draws that belong to no tick."""


def build_generator(seed: int, name: str, number: int = 0) -> np.random.Generator:
    """Return a separate generator for one named use of a seed, such as one day of a plan."""
    return np.random.Generator(
        np.random.Philox(key=_derive_key(seed, name), counter=[0, number, BESIDE_TICKS, 0])
    )


@lru_cache(maxsize=100_000)
def draw_uniform(seed: int, name: str) -> float:
    """Return the number in [0, 1) that a seed gives to a name."""
    # A generator of its own would ask the system for a seed first, which it does not use.
    word = _own.at(_derive_key(seed, name), 0, BESIDE_TICKS).random_raw()
    return (int(word) >> 11) * 2.0**-53


def draw_words(seed: int, name: str, ticks: Array, lanes: int) -> Words:
    """Return [lane, tick] random words; `ticks` are seconds since the epoch, in order."""
    if not len(ticks):
        return np.zeros((lanes, 0), np.uint64)
    step = -(-lanes // WORDS)
    index = np.floor_divide(ticks, TICK_S).astype(np.int64)
    first, last = int(index[0]), int(index[-1])
    source = _own.at(_derive_key(seed, name), first * step)
    raw = source.random_raw((last - first + 1) * step * WORDS).reshape(-1, step * WORDS)
    dense = last - first + 1 == len(ticks)
    return (raw if dense else raw[index - first])[:, :lanes].T


def compute_uniform(raw: Words) -> Array:
    """Return numbers in [0, 1)."""
    return (raw >> np.uint64(11)).astype(np.float64) * 2.0**-53


def draw_normal(raw: Words) -> Array:
    """Return nearly normal numbers: four uniform ones per word, summed; at most 3.5 in size."""
    parts = np.ascontiguousarray(raw).view(np.uint16).reshape(*raw.shape, 4)
    total: Array = parts.sum(axis=-1, dtype=np.float64)
    return np.asarray((total / 65536.0 - 2.0) * 3.0**0.5)


def _derive_key(seed: int, name: str) -> Words:
    return np.array([seed & 0xFFFF_FFFF_FFFF_FFFF, zlib.crc32(name.encode())], np.uint64)
