"""The schedule of faults: which, when and for how long, from one seed."""

import random
from typing import NamedTuple

KINDS = {
    "kill the service": 0.0,
    "stop the service": 0.0,
    "kill a canary": 0.0,
    "exporter hangs": 6.0,
    "exporter drips": 6.0,
    "exporter bombs": 6.0,
    "exporter refuses": 6.0,
    "prometheus away": 6.0,
    "prometheus hangs": 6.0,
    "postgresql loses an answer": 0.0,
    "postgresql stopped": 5.0,
    "postgresql hangs": 5.0,
    "s3 away": 6.0,
    "s3 hangs": 6.0,
    "api server away": 5.0,
    "disk full": 6.0,
    "clock ahead": 6.0,
    "clock behind": 6.0,
}
"""Each fault, and the seconds that it lasts; 0 = an instant."""
PAUSE_S = (1.0, 4.0)
"""Seconds between the end of a fault and the next one; two faults of the stores never overlap."""


class PlannedFault(NamedTuple):
    """One fault: seconds after the begin, its kind and its length."""

    at_s: float
    kind: str
    length_s: float


def plan_faults(seed: int, seconds: float) -> list[PlannedFault]:
    """Return faults for so many seconds: every kind once in random order, then all again."""
    chance, at = random.Random(seed), 0.0
    planned: list[PlannedFault] = []
    while True:
        kinds = list(KINDS)
        chance.shuffle(kinds)
        for kind in kinds:
            at += chance.uniform(*PAUSE_S)
            if at + KINDS[kind] > seconds:
                return planned
            planned.append(PlannedFault(at, kind, KINDS[kind]))
            at += KINDS[kind]
