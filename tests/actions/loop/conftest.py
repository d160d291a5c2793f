"""A living cluster behind the simulator's API, and an actor whose clock the test moves."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.actions.loop.site import Site


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    """Return a cluster with two GPU nodes, its API, and an empty journal."""
    with Site(tmp_path) as made:
        yield made


@pytest.fixture
def another_site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[], Site]]:
    """Return what makes one cluster after the other."""
    made: list[Site] = []

    def make() -> Site:
        one = Site(tmp_path_factory.mktemp("site"))
        one.__enter__()
        made.append(one)
        return one

    yield make
    for one in made:
        one.close()
