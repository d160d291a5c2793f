"""A queue emptied three hours ago."""

from tests.field.history import Scrape
from tests.field.resting import VLLM, build_situation, load, rest

WAITS = "vllm:num_requests_waiting"
COUNTED = {name: value for name, value in VLLM.items() if name != WAITS}


def print_queue(name: str, until: float) -> list[Scrape]:
    """Return a queue of 8 that is empty from so many hours before the present on."""
    full, empty = load(name, {WAITS: 8}, until=until), load(name, {WAITS: 0}, since=until)
    return [*load(name, COUNTED), *full, *empty]


PARTS = [
    rest("emptied", serving=print_queue("emptied", 3)),
    rest("late", serving=print_queue("late", 0.5)),
]

SITUATION = build_situation("J", PARTS, {"emptied": "", "late": "requests at its servers: 8 wait"})
