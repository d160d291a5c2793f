"""The replay of waits on one pool, held against one that tries the whole queue at each event."""

import pytest
from hypothesis import example, given
from hypothesis import settings as run
from hypothesis import strategies as st

from analyzers.demand import wait_replay
from analyzers.demand.wait_replay import GangRequest, replay_waits

REQUEST = st.builds(
    GangRequest,
    created_s=st.integers(0, 200),
    gpus=st.sampled_from([0.5, 1, 2, 4, 8, 16]),
    run_s=st.integers(1, 100),
    waited_s=st.just(0.0),
)


def replay_each_event(requests: list[GangRequest], gpus: float, depth: int) -> list[float]:
    waits = [float("inf")] * len(requests)
    queue: list[int] = []
    ends: list[tuple[float, int, float]] = []
    free = gpus
    coming = [n for n, request in enumerate(requests) if request.gpus <= gpus]
    while coming or (queue and ends):
        if ends and (not coming or min(ends)[0] <= requests[coming[0]].created_s):
            ends.sort(key=lambda end: (end[0], end[2]))
            now, _, freed = ends.pop(0)
            free += freed
        else:
            now = requests[coming[0]].created_s
            queue.append(coming.pop(0))
        for n in queue[:depth]:
            if requests[n].gpus <= free:
                free -= requests[n].gpus
                waits[n] = now - requests[n].created_s
                ends.append((now + requests[n].run_s, n, requests[n].gpus))
                queue.remove(n)
    return waits


BEYOND_THE_DEPTH = [
    GangRequest(0, 4, 10, 0.0),
    GangRequest(1, 2, 5, 0.0),
    GangRequest(2, 1, 5, 0.0),
    GangRequest(11, 1, 5, 0.0),
]
"""The third is first tried when the fourth comes."""


@example(requests=BEYOND_THE_DEPTH, gpus=4, depth=1)
@given(
    requests=st.lists(REQUEST, max_size=60),
    gpus=st.sampled_from([4, 8, 16, 33]),
    depth=st.sampled_from([1, 2, 3, 5, 200]),
)
@run(max_examples=200, deadline=None)
def test_each_request_waits_as_long_as_where_every_event_tries_the_queue(
    requests: list[GangRequest], gpus: float, depth: int
) -> None:
    ordered = sorted(requests, key=lambda request: request.created_s)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(wait_replay, "DEPTH", depth)
        assert replay_waits(ordered, gpus) == replay_each_event(ordered, gpus, depth)
