"""A queue that every rank prints."""

from tests.field.history import Scrape
from tests.field.resting import build_situation, load, rest

QUIET = {"sglang:num_requests_total": 9}
RANKS = [{"tp_rank": tp, "dp_rank": dp, "pp_rank": "0"} for tp in "01" for dp in "01"]


def print_ranks(name: str, queue: float) -> list[Scrape]:
    """Return the gauges of all ranks."""
    gauges = {"sglang:num_running_reqs": 0, "sglang:num_queue_reqs": queue}
    return [series for rank in RANKS for series in load(name, gauges, rank)]


PARTS = [
    rest("queued", serving=[*load("queued", QUIET), *print_ranks("queued", 20)]),
    rest("rest", serving=[*load("rest", QUIET), *print_ranks("rest", 0)]),
]

SITUATION = build_situation("J", PARTS, {"queued": "requests at its servers: 40 wait", "rest": ""})
