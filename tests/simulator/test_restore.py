"""A world is restored from its log: object for object, tick for tick, wherever it was killed."""

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import httpx
import numpy as np
import pytest

from fallow.errors import SourceError
from simulator.cluster.nodes import build_fleet
from simulator.kube.server import KubeServer
from simulator.models import Block
from simulator.restore import (
    build_checkpoint,
    record_requests,
    replay_entries,
    restore_checkpoint,
)
from simulator.world import Spec, World
from simulator.world_log import CheckpointEntry, WorldLog, read_entries

START_S, HOUR_S = 1_800_000_000.0 // 3600 * 3600, 3600.0
SPEC = Spec(nodes=build_fleet(32), start_s=START_S, horizon_s=12 * HOUR_S)
NOTEBOOKS = "/apis/kubeflow.org/v1/notebooks"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "world.jsonl"


def _stop_notebooks(url: str) -> int:
    """Stop every notebook through the API, also with a write that is refused; return how many."""
    with httpx.Client(base_url=url, headers={"user-agent": "kubectl/1.36"}) as client:
        notebooks = client.get(NOTEBOOKS).json()["items"]
        for notebook in notebooks:
            meta = notebook["metadata"]
            target = (
                f"/apis/kubeflow.org/v1/namespaces/{meta['namespace']}/notebooks/{meta['name']}"
            )
            stopped = {"annotations": {"kubeflow-resource-stopped": "2027-01-15"}}
            kind = {"content-type": "application/merge-patch+json"}
            for version in ("1", meta["resourceVersion"]):
                body = {"metadata": {**stopped, "resourceVersion": version}}
                client.patch(target, content=json.dumps(body), headers=kind)
    return len(notebooks)


def _live(path: Path) -> tuple[World, int]:
    """Let a new world live for six hours; its notebooks are stopped after four of them."""
    world = World(SPEC, 3)
    with WorldLog(path) as log, KubeServer(world.store) as server:
        world.log = log
        world.advance(START_S + 3 * HOUR_S)
        log.append(build_checkpoint(world))
        world.advance(START_S + 4 * HOUR_S)
        record_requests(world, server)
        stopped = _stop_notebooks(server.url)
        world.advance(START_S + 6 * HOUR_S)
    world.log = None
    return world, stopped


def _restore(path: Path) -> tuple[World, list[Block]]:
    world = World(SPEC, 3)
    with KubeServer(world.store) as server:
        rest = restore_checkpoint(world, server, read_entries(path))
        return world, replay_entries(world, server, rest)


def test_a_restored_world_has_the_same_objects_and_goes_on_with_the_same_ticks(path: Path) -> None:
    world, stopped = _live(path)
    again, blocks = _restore(path)
    assert stopped > 2
    assert again.store.compute_digest() == world.store.compute_digest()
    assert [t.end_s for t in again.cluster.allocations] == [
        t.end_s for t in world.cluster.allocations
    ]
    assert [block.start for block in blocks] == [START_S + 3 * HOUR_S, START_S + 4 * HOUR_S]
    one, other = (w.advance(START_S + 7 * HOUR_S) for w in (world, again))
    for name in Block.__struct_fields__:
        if isinstance(getattr(one, name), np.ndarray):
            np.testing.assert_array_equal(getattr(one, name), getattr(other, name), name)


def test_a_process_that_is_killed_in_an_advance_loses_nothing(path: Path) -> None:
    world, _ = _live(path)
    child = os.fork()
    if child == 0:
        again, _ = _restore(path)
        again.log = WorldLog(path)
        again.cluster.settle = lambda now_s: os.kill(os.getpid(), signal.SIGKILL)  # type: ignore[method-assign]  # noqa: ARG005
        again.advance(START_S + 8 * HOUR_S)
        os._exit(1)
    assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL
    with path.open("ab") as file:
        file.write(b'{"type":"advance","unt')  # and another one while it wrote
    world.advance(START_S + 8 * HOUR_S)
    again, _ = _restore(path)
    assert again.now_s == world.now_s
    assert again.store.compute_digest() == world.store.compute_digest()


def _change(lines: list[str]) -> Iterator[tuple[str, list[str]]]:
    first = next(n for n, line in enumerate(lines) if '"type":"checkpoint"' in line)
    body = json.loads(lines[first])
    yield "no checkpoint", lines[:first]
    yield "another version", [*lines[:first], json.dumps({**body, "digest": "0"})]
    requests = [n for n, line in enumerate(lines) if '"type":"request"' in line]
    yield "another version", [*lines[: requests[1]], *lines[requests[1] + 1 :]]
    yield "no entry", [*lines, "{}"]


def test_a_log_of_another_world_is_refused(path: Path) -> None:
    _live(path)
    lines = path.read_text().splitlines()
    assert sum(isinstance(e, CheckpointEntry) for e in read_entries(path)) == 1
    for message, changed in _change(lines):
        path.write_text("".join(f"{line}\n" for line in changed))
        with pytest.raises(SourceError, match=message):
            _restore(path)
