"""One pool without nodes waits as `capacity.replay` does on one node: it is 60 times as fast."""

import random

import pytest

from analyzers.demand.wait_replay import GangRequest, replay_waits
from capacity.placement.node_fleet import FleetNode, FleetPod
from capacity.replay.records import ReplayNode, ReplaySite, ReplayUnit
from capacity.replay.replay import replay

ENOUGH = 10**12


def build_requests(seed: int) -> list[GangRequest]:
    """Return a few days of requests for about 100 GPUs."""
    dice, created_s, requests = random.Random(seed), 0.0, []
    for _ in range(300):
        created_s += dice.expovariate(1 / 300)
        gpus, run_s = dice.choice([1.0, 1.0, 2.0, 4.0, 8.0]), dice.expovariate(1 / 9000) + 60
        requests.append(GangRequest(created_s, gpus, run_s, 0.0))
    return requests


@pytest.mark.parametrize(("seed", "gpus"), [(0, 40), (1, 64), (2, 100)])
def test_waits_are_those_of_the_replay_on_one_node(seed: int, gpus: int) -> None:
    requests = build_requests(seed)
    units = tuple(
        ReplayUnit(
            f"{n:04}", "", "", 0, request.created_s,
            (FleetPod(f"pod-{n}", gpus=int(request.gpus)),), (request.run_s,),
        )
        for n, request in enumerate(requests)
    )  # fmt: skip
    node = ReplayNode(FleetNode("node", ENOUGH, ENOUGH, gpus))
    results = {u.unit.name: u for u in replay(ReplaySite(0, 1e9, (node,), units)).units}
    starts = [results[unit.name].start_s for unit in units]
    expected = [s - r.created_s for s, r in zip(starts, requests, strict=True) if s is not None]
    waits = replay_waits(requests, gpus)
    assert waits == pytest.approx(expected)
    assert (max(waits) > 3600) == (gpus < 100)
