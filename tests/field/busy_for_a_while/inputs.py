"""A Prometheus whose queue is full at every tenth query."""

import itertools

from tests.field.front import build_error
from tests.field.through_a_front import build_situation

_TURNS = itertools.cycle((True, *(False,) * 9))
_BUSY = build_error("query timed out in query queue", "timeout")


def _answer(path: str, status: int, body: bytes) -> tuple[int, bytes]:
    return (503, _BUSY) if "/query" in path and next(_TURNS) else (status, body)


SITUATION = build_situation(_answer)
