"""Runners of slices: processes of this machine, and Ray where `.ci/ray` runs the tests."""

from collections.abc import Iterator

import pytest

from warehouse.runners.local import LocalRunner
from warehouse.runners.ray_cluster import RayRunner
from warehouse.runners.slices import Runner


@pytest.fixture(scope="module", params=["local 1", "local 2", "ray 1", "ray 2"])
def runner(request: pytest.FixtureRequest) -> Iterator[Runner]:
    """Yield a runner of one worker or two."""
    kind, _, count = request.param.partition(" ")
    made: Runner
    if kind == "ray":
        made = RayRunner(request.getfixturevalue("ray_nodes"), tasks=int(count))
    else:
        made = LocalRunner(int(count))
    yield made
    made.close()
