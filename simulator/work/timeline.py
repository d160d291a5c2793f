"""Build phases one after the other, as far as they are needed; they never change afterwards."""

from collections.abc import Iterator, Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from simulator.work.chance import Array
from simulator.work.kinds import read_kinds

Places = npt.NDArray[np.intp]

MOST_KEPT = 256
"""Ticks whose places are kept, at most: a simulation keeps the timelines of all its pods."""


class Phases(msgspec.Struct, frozen=True):
    """Consecutive phases: seconds, kind, engine-busy level (0-1), progress per second."""

    length: Array
    kind: npt.NDArray[np.int8]
    level: Array
    speed: Array

    @classmethod
    def of(
        cls,
        names: Sequence[str],
        length: Sequence[float] | Array,
        level: Sequence[float] | Array | float = 0.0,
        speed: Sequence[float] | Array | float = 0.0,
    ) -> "Phases":
        """Build from names of kinds; phases of no length are left out."""
        seconds = np.asarray(length, np.float64)
        real = seconds > 0
        number = np.array([read_kinds().number(name) for name in names], np.int8)
        return cls(
            seconds[real],
            number[real],
            np.broadcast_to(np.asarray(level, np.float64), seconds.shape)[real],
            np.broadcast_to(np.asarray(speed, np.float64), seconds.shape)[real],
        )

    def first(self, count: int, last_s: float) -> "Phases":
        """Return the first so many phases, the last of them cut to some seconds."""
        length = self.length[:count].copy()
        length[-1] = last_s
        return Phases(length, self.kind[:count], self.level[:count], self.speed[:count])


Source = Iterator[Phases]


def build_endless_phase(name: str, level: float = 0.0) -> Phases:
    """Return one phase without an end."""
    return Phases.of([name], [np.inf], level)


def follow_until_done(source: Source, work_s: float, then: str) -> Source:
    """Follow a source until its progress reaches `work_s`, then stay in one phase."""
    yield from _follow_until(source, work_s, then, by_progress=True)


def follow_until(source: Source, after_s: float, then: str, level: float = 0.0) -> Source:
    """Follow a source for some seconds, then stay in one phase."""
    yield from _follow_until(source, after_s, then, level=level)


def _follow_until(
    source: Source, left: float, then: str, *, level: float = 0.0, by_progress: bool = False
) -> Source:
    for piece in source:
        gained = _compute_progress(piece) if by_progress else piece.length
        total = np.cumsum(gained)
        if not len(total) or total[-1] < left:
            left -= float(total[-1]) if len(total) else 0.0
            yield piece
            continue
        at = int(np.searchsorted(total, left))
        rest = left - (float(total[at]) - float(gained[at]))
        seconds = rest / float(piece.speed[at]) if by_progress else rest
        if at or seconds > 0:
            yield piece.first(at + 1, seconds)
        break
    yield build_endless_phase(then, level)


def _compute_progress(piece: Phases) -> Array:
    return np.where(piece.speed > 0, piece.length, 0) * piece.speed


class Timeline:
    """The phases of one pod from its start on; extended when later times are requested."""

    def __init__(self, start_s: float, source: Source) -> None:
        self._source = source
        self._end = start_s
        self._progress = 0.0
        self._saved = 0.0
        self._after_save = False
        self._latest: tuple[Array, Places] | None = None
        self.begin = np.zeros(0)
        self.kind = np.zeros(0, np.int8)
        self.level = np.zeros(0)
        self.speed = np.zeros(0)
        self.progress = np.zeros(0)
        """Progress when the phase begins."""
        self.saved = np.zeros(0)
        """The part of it that a finished checkpoint keeps."""
        self._append(next(source))

    def grow(self, until_s: float) -> None:
        """Build the phases up to a time, with the one that contains it."""
        while self._end <= until_s:
            self._append(next(self._source))

    def finish(self) -> float:
        """Build every phase of a source that ends; return when its last, endless phase begins."""
        while self._end != np.inf:
            self._append(next(self._source))
        return float(self.begin[-1])

    def at(self, ticks: Array) -> Places:
        """Return the index of each tick's phase; before the start, the first.

        The rows of a pod need the same few ticks a dozen times: the last places are kept and
        returned for the very same array, which nobody may change. Later phases do not change them.
        """
        latest = self._latest
        if latest is not None and latest[0] is ticks:
            return latest[1]
        if len(ticks):
            self.grow(float(ticks[-1]))
        places = np.maximum(np.searchsorted(self.begin, ticks, side="right") - 1, 0)
        if len(ticks) <= MOST_KEPT:
            self._latest = ticks, places
        return places

    def progress_at(self, ticks: Array) -> Array:
        """Return the progress made by each tick."""
        place = self.at(ticks)
        return self.progress[place] + self.speed[place] * np.maximum(ticks - self.begin[place], 0)

    def saved_at(self, ticks: Array) -> Array:
        """Return the progress that would remain after a stop at each tick."""
        place = self.at(ticks)
        return self.saved[place]

    def kind_at(self, ticks: Array) -> npt.NDArray[np.int8]:
        """Return the number of the kind of phase in which each tick lies."""
        place = self.at(ticks)
        return self.kind[place]

    def _append(self, piece: Phases) -> None:
        if not len(piece.length):
            return
        ends = self._end + np.cumsum(piece.length)
        gained = self._progress + np.cumsum(
            np.where(piece.speed > 0, piece.length, 0) * piece.speed
        )
        before = np.append(self._progress, gained[:-1])
        save = piece.kind == read_kinds().number("checkpoint")
        fresh = np.append(self._after_save, save[:-1])
        saved = np.maximum.accumulate(np.where(fresh, before, self._saved))
        self.begin = np.append(self.begin, np.append(self._end, ends[:-1]))
        self.kind = np.append(self.kind, piece.kind)
        self.level = np.append(self.level, piece.level)
        self.speed = np.append(self.speed, piece.speed)
        self.progress = np.append(self.progress, before)
        self.saved = np.append(self.saved, saved)
        self._end, self._progress = float(ends[-1]), float(gained[-1])
        self._saved, self._after_save = float(saved[-1]), bool(save[-1])
