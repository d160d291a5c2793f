"""Inject faults: throttling, cut and expired streams, expired tokens."""

import threading
from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True)
class BrokenWrite:
    """The fault of one write."""

    how: Literal["refused", "cut before", "cut after", "silent"]
    """cut before: the connection breaks and nothing is stored; cut after: the object is stored;
    silent: the object is stored and no response is sent."""
    code: int = 500
    reason: str = "InternalError"
    message: str = "something went wrong"
    retry_after: str = ""
    path: str = ""
    """Only writes to paths with this end."""


@dataclass
class Faults:
    """Switches; numbers say how many times, and count down."""

    throttle: list[tuple[int, str]] = field(default_factory=list)
    """Codes and Retry-After that the next requests get instead of answers."""
    expire_tokens: int = 0
    fresh_tokens: bool = True
    """Whether an expired continue token comes with a fresh one."""
    expire_streams: int = 0
    """Watches that end with an ERROR of code 410."""
    cut_streams: int = 0
    """Watches that break off in the middle of a line, after the bookmarks that are due."""
    refuse_watches: bool = False
    """Refuse a watch from a forgotten version with HTTP 410, as older servers do."""
    away: bool = False
    """Close the connection of every request and every open watch, like a server that restarts."""
    writes: list[BrokenWrite] = field(default_factory=list)
    """What happens to the next writes that are no dry runs, one each."""
    marks: int = 0
    closing: bool = False
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def take_throttle(self) -> tuple[int, str] | None:
        """Return the refusal of the next request, or None."""
        with self._lock:
            return self.throttle.pop(0) if self.throttle else None

    def take_write(self, path: str) -> BrokenWrite | None:
        """Return the fault of this write, or None."""
        with self._lock:
            for place, broken in enumerate(self.writes):
                if path.endswith(broken.path):
                    return self.writes.pop(place)
            return None

    def take_expired_token(self) -> bool:
        """Return whether the next continue token is too old."""
        return self._take("expire_tokens")

    def take_expired_stream(self) -> bool:
        """Return whether a watch has to end with an ERROR."""
        return self._take("expire_streams")

    def take_cut_stream(self) -> bool:
        """Return whether a watch has to break off."""
        return self._take("cut_streams")

    def _take(self, name: str) -> bool:
        with self._lock:
            left: int = getattr(self, name)
            if left <= 0:
                return False
            setattr(self, name, left - 1)
            return True
