"""Define a slice of a stage: what one task computes, independent of every other slice."""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Protocol, TypeVar

import msgspec

from fallow.errors import FallowError, TemporaryError, UnreadableDaysError, UsageError
from warehouse.failures import find_hint, is_temporary

ATTEMPTS = 3
"""How often a slice is tried before its stage fails."""

S = TypeVar("S")
T = TypeVar("T")


class StageSlice(msgspec.Struct, frozen=True):
    """Hours of one cluster [start, end) (naive UTC), and which part of its devices.

    `cluster` is empty where a slice has all clusters; part `part` of `parts` has the devices whose
    hash is `part` modulo `parts`.
    """

    cluster: str
    start: datetime
    end: datetime
    part: int = 0
    parts: int = 1

    def __str__(self) -> str:
        cluster = f"cluster {self.cluster}, " if self.cluster else ""
        part = f", part {self.part + 1} of {self.parts} of its devices" if self.parts > 1 else ""
        return f"{cluster}{self.start:%Y-%m-%d %H:%M} to {self.end:%Y-%m-%d %H:%M}{part}"


class StageError(FallowError):
    """Report a stage of which nothing was stored, because one of its slices failed."""


class TemporaryStageError(StageError, TemporaryError):
    """Report the same where a later attempt may succeed: disk full, catalog or store away."""


class Runner(Protocol):
    """What runs the slices of a stage."""

    @property
    def concurrency(self) -> int:
        """How many slices run at the same time."""

    def map(self, task: Callable[[S], T], slices: Sequence[S]) -> list[T]:
        """Return the task's result for each slice, in their order.

        `task`, slices and results are pickled, and a task may run more than once: after a worker
        died, or failed, up to `ATTEMPTS` times. A slice's text names it.

        Raises:
            StageError: a slice failed `ATTEMPTS` times; it is named, with its last error.
            UnreadableDaysError: a slice needs archived days, and their store is away.
            UsageError: the task refuses what it is asked.
            TemporaryError: the workers cannot be reached.
        """

    def close(self) -> None:
        """Stop the workers."""


def fail_stage(failed: object, error: BaseException) -> FallowError:
    """Return the error of a stage whose slice failed for good.

    That archived days are away, or that the task refuses its input, is no fault of the slice: the
    caller gets the error as it gets it without slices.
    """
    if isinstance(error, UnreadableDaysError | UsageError):
        return error
    hint = None
    if isinstance(error, FallowError):
        text, hint = error.message, error.hint
    else:
        text = f"{type(error).__name__}: {error}"
    hint = hint or find_hint(text) or "`fallow doctor` reads what can be wrong"
    passes = isinstance(error, TemporaryError) or is_temporary(text)
    kind = TemporaryStageError if passes else StageError
    return kind(
        f"a slice failed {ATTEMPTS} times, nothing of its stage is stored ({failed}): {text}",
        hint=f"{hint}; the next turn tries the whole stage again",
    )
