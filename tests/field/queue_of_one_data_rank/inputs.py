"""A queue at one of eight data-parallel ranks."""

from tests.field.history import Scrape
from tests.field.resting import build_situation, load, rest

COUNTER = {"vllm:request_success_total": 3}
RUNS, WAITS = "vllm:num_requests_running", "vllm:num_requests_waiting"


def print_engines(name: str, queue: float) -> list[Scrape]:
    """Return the gauges of eight engines, with a queue at the sixth."""
    return [
        series
        for engine in range(8)
        for series in load(name, {RUNS: 0, WAITS: queue * (engine == 5)}, {"engine": str(engine)})
    ]


PARTS = [
    rest(
        "ranked", serving=[*load("ranked", COUNTER, {"engine": "0"}), *print_engines("ranked", 7)]
    ),
    rest("rest", serving=[*load("rest", COUNTER, {"engine": "0"}), *print_engines("rest", 0)]),
]

SITUATION = build_situation("J", PARTS, {"ranked": "requests at its servers: 7 wait", "rest": ""})
