"""Two clusters, an actor each: an outage or a freeze of one leaves the other alone."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path

import pytest

from actions.cluster.client import KubeClient
from actions.journal import JournalState
from fallow.errors import FallowError
from tests.actions.loop.site import START, Site, actor_of, api


@pytest.fixture
def sites(tmp_path: Path) -> Iterator[tuple[Site, Site]]:
    """Return two clusters, each with its API server, its journal and an idle Deployment."""
    folders = [tmp_path / name for name in ("east", "west")]
    for folder in folders:
        folder.mkdir()
    with Site(folders[0]) as east, Site(folders[1], START + timedelta(hours=1)) as west:
        for site in (east, west):
            site.deployment()
        yield east, west


@contextmanager
def hanging() -> Iterator[str]:
    """Yield the address of an API server that takes connections and never answers."""
    connections: list[socket.socket] = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def accept() -> None:
            with suppress(OSError):
                while True:
                    connections.append(server.accept()[0])

        thread = threading.Thread(target=accept)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.getsockname()[1]}"
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join()
            for connection in connections:
                connection.close()


def test_the_other_cluster_is_acted_upon_while_an_api_server_hangs(
    sites: tuple[Site, Site],
) -> None:
    east, west = sites
    faults: list[FallowError] = []
    with hanging() as url:
        client = KubeClient(api(url, timeout_s=60.0), "c")
        record = JournalState(east.journal())
        stuck = actor_of(
            client, record, east.folder, lambda: east.now, "east", evidence=east.evidence,
            notifier=east.told,
        )  # fmt: skip

        def turn() -> None:
            try:
                stuck.turn(dry_run=False)
            except FallowError as error:
                faults.append(error)

        thread = threading.Thread(target=turn)
        thread.start()
        action = west.done(west.actor())
        assert thread.is_alive(), "east still waits for its API server"
    thread.join()
    assert action.outcome is not None
    assert west.replicas() == 0
    assert (east.replicas(), east.writes()) == (2, [])
    assert "intent" not in east.kinds()
    # The API server answers again: east is acted upon as if nothing had been.
    east.done(east.actor())
    assert east.replicas() == 0


def test_a_freeze_of_one_cluster_leaves_the_other_alone(sites: tuple[Site, Site]) -> None:
    east, west = sites
    (east.folder / "FREEZE").touch()
    frozen = east.actor()
    report = frozen.turn(dry_run=False)
    assert [reason.gate for reason in report.halted] == ["frozen"]
    west.done(west.actor())
    assert (east.replicas(), west.replicas()) == (2, 0)
    assert east.writes() == []
    (east.folder / "FREEZE").unlink()
    east.done(frozen)
    assert east.replicas() == 0


def test_the_budget_of_one_cluster_is_not_spent_by_the_other(sites: tuple[Site, Site]) -> None:
    east, west = sites
    spent = west.done(west.actor())
    assert spent.outcome is not None
    assert not east.actor().record.catch_up().actions
    assert len(west.actor().record.catch_up().actions) == 1
