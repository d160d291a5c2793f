"""The door to a JupyterHub: servers are stopped and started by the hub itself, once."""

from collections.abc import Iterator
from typing import Any

import pytest

from actions.cluster.jupyterhub import JupyterHubClient
from actions.cluster.pointers import get_value
from actions.reclaim.jupyterhub import build_change
from fallow.action_models import Change, Target
from fallow.errors import RefusedError, SettingsError, TemporaryError
from fallow.settings.actions import JupyterHubSettings
from tests.servers.jupyterhub import TOKEN, HubServer, jupyterhub


@pytest.fixture
def served() -> Iterator[HubServer]:
    with jupyterhub() as hub:
        hub.start("ada@x.org", "big")
        hub.start("ada@x.org")
        yield hub


def door(served: HubServer, **settings: Any) -> JupyterHubClient:
    return JupyterHubClient(
        JupyterHubSettings.model_validate({"url": served.url, "token": TOKEN, **settings})
    )


def asked(*, running: bool, server: str = "big", user: str = "ada@x.org") -> Change:
    target = Target("c", "", "JupyterServer", "hub", f"{user}/{server}", "pod-uid")
    return build_change(target, user, server, running=running)


def holds(hub: JupyterHubClient, wanted: Change) -> bool:
    found = hub.get(wanted.read)
    return all(get_value(found, p) == v for p, v in wanted.becomes.items())


@pytest.mark.parametrize("server", ["big", ""])
def test_a_server_is_stopped_and_started_again(served: HubServer, server: str) -> None:
    hub = door(served)
    before = hub.get("/hub/api/users/ada%40x.org")
    stop, start = asked(running=False, server=server), asked(running=True, server=server)
    assert (stop.was, stop.becomes) == (start.becomes, start.was)
    assert hub.send(stop, dry_run=True).ok
    assert hub.get(stop.read) == before, "a dry run stops nothing"
    assert hub.send(stop, dry_run=False).ok
    assert holds(hub, stop)
    assert hub.send(start, dry_run=False).ok
    assert hub.get(stop.read) == before


def test_only_the_server_that_is_meant_is_stopped(served: HubServer) -> None:
    door(served).send(asked(running=False), dry_run=False)
    assert list(served.users["ada@x.org"]) == [""]


@pytest.mark.parametrize("running", [True, False])
def test_what_is_so_already_is_a_conflict_and_nothing_is_sent(
    served: HubServer, running: bool
) -> None:
    if not running:
        del served.users["ada@x.org"]["big"]
    answer = door(served).send(asked(running=running), dry_run=False)
    assert (answer.verdict, answer.cause) == ("conflict", "test")
    assert [a for a in served.asked if not a.startswith("GET")] == []


def test_a_hub_that_takes_its_time_is_done_and_then_busy(served: HubServer) -> None:
    served.slow = True
    hub, stop = door(served), asked(running=False)
    answer = hub.send(stop, dry_run=False)
    assert (answer.verdict, answer.code) == ("done", 202)
    again = hub.send(stop, dry_run=False)
    assert again.verdict == "conflict"
    assert "busy with it: stop" in again.reason


@pytest.mark.parametrize(
    ("code", "meant"),
    [
        (400, ("conflict", "pending")),
        (403, ("refused", "rights")),
        (404, ("gone", "")),
        (429, ("throttled", "rate")),
        (503, ("away", "server")),
    ],
)
def test_what_the_hub_refuses_means_what_a_clusters_refusal_means(
    served: HubServer, code: int, meant: tuple[str, str]
) -> None:
    served.answers = [code]
    answer = door(served).send(asked(running=False), dry_run=False)
    assert (answer.verdict, answer.cause) == meant
    assert "big" in served.users["ada@x.org"]


def test_a_user_that_is_not_there_is_gone(served: HubServer) -> None:
    assert door(served).send(asked(running=False, user="bob"), dry_run=True).verdict == "gone"


def test_a_token_without_scopes_is_one_clear_line(served: HubServer) -> None:
    hub = door(served, token="other")
    with pytest.raises(RefusedError, match="lacks the scope") as refused:
        hub.get("/hub/api/users/ada%40x.org")
    assert "other" not in str(refused.value)
    assert hub.send(asked(running=False), dry_run=True).cause == "rights"


def test_a_hub_that_does_not_answer_is_away(served: HubServer) -> None:
    hub = door(served, url="http://127.0.0.1:1")
    assert hub.send(asked(running=False), dry_run=False).verdict == "away"
    with pytest.raises(TemporaryError, match="no answer"):
        hub.get("/hub/api/users/ada")


def test_without_a_hub_the_setting_is_named() -> None:
    with pytest.raises(SettingsError, match=r"actions\.jupyterhub\.url"):
        JupyterHubClient(JupyterHubSettings())
