"""Decide which device, node or field has which quirk of real telemetry, and when.

Everything follows from the seed, the quirk's name, the affected key and absolute time, so that a
stretch cut into blocks has the same quirks as the whole. Time is cut into slots of `every_s`; in
each slot a key is affected with probability `rate`, for `length_s` somewhere within the slot. A
quirk without `every_s` affects its keys permanently. Names and defaults: `quirks.csv`.
"""

import zlib
from collections.abc import Iterable, Mapping, Sequence
from functools import cache

import msgspec
import numpy as np
import numpy.typing as npt

from fallow.errors import UsageError
from fallow.resources import read_table
from simulator.models import Marks

Doubles = npt.NDArray[np.float64]


class Quirk(msgspec.Struct, frozen=True):
    """One quirk as the table tells it; `values` are its parameters' defaults."""

    name: str
    scope: str
    values: Mapping[str, float]
    description: str


class QuirkMarks(msgspec.Struct, frozen=True):
    """When a quirk affects which keys: `struck` and `begin` (its first second) by [key, tick]."""

    struck: Marks
    begin: Doubles

    @property
    def any(self) -> bool:
        """Whether anything is affected."""
        return bool(self.struck.any())


@cache
def read_quirks() -> dict[str, Quirk]:
    """Return every quirk by name."""
    by_name = {}
    for row in read_table("simulator.exporters", "quirks.csv"):
        always = float(row["every_s"]) == 0
        timed = ("rate",) if always else ("rate", "every_s", "length_s")
        values = {n: float(row[n]) for n in timed}
        more = dict(pair.split("=") for pair in row["more"].split())
        values |= {name: float(value) for name, value in more.items()}
        by_name[row["name"]] = Quirk(row["name"], row["scope"], values, row["description"])
    return by_name


class Quirks(msgspec.Struct, frozen=True):
    """The enabled quirks, with their parameters."""

    seed: int
    on: Mapping[str, Mapping[str, float]]

    @classmethod
    def of(cls, names: Iterable[str] = (), seed: int = 0) -> "Quirks":
        """Enable quirks: `name`, or `name:rate=0.5,length_s=900`; `all` is every one.

        Raises:
            UsageError: a quirk or a parameter that does not exist; the legal ones are named.
        """
        on: dict[str, dict[str, float]] = {}
        for text in names:
            name, _, text_values = text.partition(":")
            for quirk_name in read_quirks() if name == "all" else (name,):
                on[quirk_name] = {
                    **_build_quirk(quirk_name).values,
                    **_parse_parameters(quirk_name, text_values),
                }
        return cls(seed, on)

    def __contains__(self, name: str) -> bool:
        return name in self.on

    def value(self, name: str, parameter: str) -> float:
        """Return a parameter of an enabled quirk."""
        return self.on[name][parameter]

    def strikes(self, name: str, keys: Sequence[str], ticks: Doubles) -> QuirkMarks:
        """Return when each of some keys is affected; never if the quirk is not enabled."""
        if name not in self.on:
            never = np.zeros((len(keys), len(ticks)), np.bool_)
            return QuirkMarks(never, np.zeros(never.shape))
        parameters = self.on[name]
        period_s, length = parameters.get("every_s", 0.0), parameters.get("length_s", 0.0)
        if period_s <= 0:
            struck = self.chance(name, keys)[:, None] < parameters["rate"]
            shape = (len(keys), len(ticks))
            return QuirkMarks(np.broadcast_to(struck, shape).copy(), np.full(shape, -np.inf))
        slot, place = np.unique(ticks // period_s, return_inverse=True)
        hit = self.chance(name, keys, slot) < parameters["rate"]
        room = max(period_s - length, 0.0)
        begin = slot * period_s + self.chance(name, keys, slot, salt=1) * room
        begin, hit = begin[:, place], hit[:, place]
        return QuirkMarks(hit & (ticks >= begin) & (ticks < begin + length), begin)

    def chance(
        self, name: str, keys: Sequence[str], slot: Doubles | None = None, salt: int = 0
    ) -> Doubles:
        """Return a number in [0, 1) by key, or by [key, slot]."""
        text = (zlib.crc32(f"{self.seed}/{name}/{salt}/{key}".encode()) for key in keys)
        base = np.fromiter(text, np.uint64, len(keys))
        if slot is not None:
            base = _mix_bits(base)[:, None] ^ slot.astype(np.int64).view(np.uint64)[None, :]
        return np.asarray(_mix_bits(base) >> np.uint64(11), np.float64) * 2.0**-53


def _build_quirk(name: str) -> Quirk:
    quirk = read_quirks().get(name)
    if quirk is None:
        raise UsageError(
            f"there is no quirk {name!r}", hint=f"legal names: all, {', '.join(read_quirks())}"
        )
    return quirk


def _parse_parameters(name: str, text: str) -> dict[str, float]:
    values: dict[str, float] = {}
    legal = read_quirks()[name].values
    for pair in filter(None, text.split(",")):
        key, _, value = pair.partition("=")
        try:
            number = float(value)
        except ValueError:
            number = -1.0
        if key not in legal or not 0 <= number < np.inf:
            raise UsageError(
                f"quirk {name!r} cannot take {pair!r}",
                hint=f"write a number of 0 or more for one of {', '.join(legal)}",
            )
        values[key] = number
    return values


def _mix_bits(bits: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Scatter 64 bits (the finaliser of splitmix64)."""
    with np.errstate(over="ignore"):
        z = bits + np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))
