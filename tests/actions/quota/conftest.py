"""One server for all tests of quota actions, emptied before each."""

from collections.abc import Iterator

import pytest

from tests.actions.quota.site import Site, apiserver, stand_in
from tests.servers import kube_apiserver as real


@pytest.fixture(
    scope="session",
    params=real.BACKENDS,
)
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Site]:
    if request.param == "stand-in":
        with stand_in() as site:
            yield site
        return
    with apiserver(real.require(), tmp_path_factory.mktemp("kube")) as site:
        yield site


@pytest.fixture
def site(server: Site) -> Site:
    """Return a server without a quota on it."""
    server.clear()
    return server
