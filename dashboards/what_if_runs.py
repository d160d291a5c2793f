"""Carry out what-ifs beside the pages: one at a time, in a thread that waits for another process.

The application gives the function that answers (`use_answerer`): pages do not import it.
"""

import logging
import threading
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Literal, TypeAlias

import msgspec

from fallow.errors import FallowError
from fallow.settings import Settings
from fallow.window import Window

log = logging.getLogger("fallow.dashboard")


class WhatIfQuestion(msgspec.Struct, frozen=True):
    """One setting that is tried on a window of the past, as the options of `fallow what-if`."""

    option: Literal["quota", "pool", "priority"]
    name: str
    number: int
    window: Window
    cluster: str | None = None

    @property
    def words(self) -> tuple[str, ...]:
        """The words of the command that asks the same."""
        ends = "/".join(f"{end:%Y-%m-%dT%H:%M}" for end in (self.window.start, self.window.end))
        cluster = ("--cluster", self.cluster) if self.cluster else ()
        return (
            "fallow", "what-if", f"--{self.option}", f"{self.name}={self.number}",
            "--window", ends, *cluster,
        )  # fmt: skip


class WhatIfResult(msgspec.Struct, frozen=True):
    """What came of a question: the body of `fallow.what-if/v1`, or why there is none."""

    question: WhatIfQuestion
    answered_at: datetime
    answer: Mapping[str, Any] | None
    error: FallowError | None = None


Answerer: TypeAlias = Callable[[Settings, WhatIfQuestion], Mapping[str, Any]]
"""Returns the answer; it may take minutes, and raises `FallowError`."""


class WhatIfRuns:
    """The running question and the last result; both are the same for all people of this app."""

    def __init__(
        self, answerer: Answerer, clock: Callable[[], datetime] = lambda: datetime.now(UTC)
    ) -> None:
        self._answerer, self._clock = answerer, clock
        self._lock = threading.Lock()
        self._running: tuple[WhatIfQuestion, datetime] | None = None
        self._last: WhatIfResult | None = None

    @property
    def running(self) -> tuple[WhatIfQuestion, datetime] | None:
        """The question that is being answered, and since when."""
        with self._lock:
            return self._running

    @property
    def last(self) -> WhatIfResult | None:
        """The last result."""
        with self._lock:
            return self._last

    def start(self, settings: Settings, question: WhatIfQuestion) -> bool:
        """Begin to answer; False = another question is being answered."""
        with self._lock:
            if self._running is not None:
                return False
            self._running = (question, self._clock())
        threading.Thread(target=self._answer, args=(settings, question), daemon=True).start()
        return True

    def _answer(self, settings: Settings, question: WhatIfQuestion) -> None:
        answer: Mapping[str, Any] | None = None
        error: FallowError | None = None
        try:
            answer = self._answerer(settings, question)
        except FallowError as refused:
            error = refused
        except Exception:
            log.exception("a what-if failed", extra={"question": " ".join(question.words)})
            error = FallowError("the what-if failed; the dashboard's log has the details")
        with self._lock:
            self._last = WhatIfResult(question, self._clock(), answer, error)
            self._running = None


_runs: list[WhatIfRuns] = []


def use_answerer(answerer: Answerer) -> None:
    """Answer questions with this function from now on."""
    _runs[:] = [WhatIfRuns(answerer)]


def get_runs() -> WhatIfRuns | None:
    """Return the questions of this app; None = nobody gave a function that answers."""
    return _runs[0] if _runs else None
