"""Requests that only fail."""

from tests.field.history import Scrape
from tests.field.resting import build_situation, grow, load, rest

GAUGES = {"vllm:num_requests_running": 0, "vllm:num_requests_waiting": 0}
SUCCESS = "vllm:request_success_total"


def print_ends(name: str, stops: float, aborts: float) -> list[Scrape]:
    """Return the gauges, and how fast requests end, by the way they end."""
    ends = {"stop": stops, "length": 0, "abort": aborts}
    return [
        *load(name, GAUGES),
        *(grow(name, SUCCESS, growth, finished_reason=why) for why, growth in ends.items()),
    ]


PARTS = [
    rest("broken", serving=print_ends("broken", 0, 2)),
    rest("served", serving=print_ends("served", 2, 0)),
]

SITUATION = build_situation("J", PARTS, {"broken": "", "served": "no finding"})
