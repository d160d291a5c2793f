"""A place to act in: an API server with every kind, and a namespace for each test."""

from collections.abc import Iterator

import pytest

from simulator.kube.server import KubeServer
from tests.actions.places import Place, serving
from tests.servers import kube_apiserver as real
from tests.simulator.kube.conftest import Kube


@pytest.fixture(scope="session", params=real.BACKENDS)
def acting_server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Kube, KubeServer | None]]:
    with serving(request.param, tmp_path_factory.mktemp("acting")) as one:
        yield one


@pytest.fixture
def place(acting_server: tuple[Kube, KubeServer | None]) -> Place:
    """Return a namespace of this test's own, and a door."""
    return Place(*acting_server)
