"""The HTTP door itself: what can be made to go wrong, and that nothing is left behind."""

import json
import socket
import threading
from collections.abc import Iterator

import pytest
import urllib3

from fallow.errors import UsageError
from simulator.kube.server import KubeServer
from simulator.kube.store import ObjectStore
from tests.simulator.kube.conftest import Kube

MAPS = "/api/v1/namespaces/default/configmaps"


@pytest.fixture
def server() -> Iterator[KubeServer]:
    """A stand-in of this test's own, with a bookmark every tenth of a second."""
    with KubeServer(ObjectStore(lambda: 0.0, installed=()), bookmark_s=0.1) as one:
        yield one


@pytest.fixture
def asked(server: KubeServer) -> Kube:
    """What asks it."""
    return Kube("stand-in", server.url, server.store.history.forget)


def test_a_port_in_use_is_named() -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = holder.getsockname()[1]
        with pytest.raises(UsageError, match=f"cannot listen on 127.0.0.1:{port}: Address already"):
            KubeServer(ObjectStore(lambda: 0.0), port)


def test_closing_ends_every_watch_and_frees_the_port(server: KubeServer, asked: Kube) -> None:
    before = server.store.version
    ended = threading.Event()

    def listen() -> None:
        query = {"resourceVersion": str(before), "allowWatchBookmarks": "false"}
        assert asked.watch(MAPS, 1, **query) == []
        ended.set()

    thread = threading.Thread(target=listen)
    thread.start()
    while not server.requests:
        assert thread.is_alive()
    server.close()
    server.close()
    thread.join(5)
    assert ended.is_set()
    with pytest.raises(urllib3.exceptions.HTTPError):
        asked.ask("GET", MAPS)
    with KubeServer(ObjectStore(lambda: 0.0), server.port) as again:
        assert again.port == server.port


def test_bookmarks_come_to_those_who_ask(server: KubeServer, asked: Kube) -> None:
    since = str(server.store.version)
    server.store.create("Namespace", {"metadata": {"name": "elsewhere"}})
    (mark,) = asked.watch(MAPS, 1, resourceVersion=since, allowWatchBookmarks="true")
    assert mark["type"] == "BOOKMARK"
    assert mark["object"]["kind"] == "ConfigMap"
    assert mark["object"]["metadata"]["resourceVersion"] == str(server.store.version)
    quiet = {"watch": "true", "timeoutSeconds": "1", "resourceVersion": since}
    assert asked.ask("GET", MAPS, **quiet).raw == b""


def test_throttling_says_how_long_to_wait(server: KubeServer, asked: Kube) -> None:
    server.faults.throttle = [(429, "7"), (503, "")]
    slow = asked.ask("GET", MAPS)
    assert (slow.code, slow.headers["Retry-After"], slow.body["code"]) == (429, "7", 429)
    assert asked.ask("GET", MAPS).code == 503
    assert asked.ask("GET", MAPS).code == 200


def test_a_cut_stream_breaks_off_in_the_middle_of_a_line(server: KubeServer, asked: Kube) -> None:
    server.faults.cut_streams = 1
    with pytest.raises(urllib3.exceptions.HTTPError):
        asked.watch(MAPS, 1, resourceVersion=str(server.store.version))


def test_a_token_can_be_made_to_expire_without_another(server: KubeServer, asked: Kube) -> None:
    for name in ("a", "b"):
        asked.ask("POST", MAPS, {"metadata": {"name": name}})
    token = asked.ask("GET", MAPS, limit=1).body["metadata"]["continue"]
    server.faults.expire_tokens, server.faults.fresh_tokens = 1, False
    gone = asked.ask("GET", MAPS, limit=1, **{"continue": token})
    assert (gone.code, gone.body["metadata"]) == (410, {})
    rest = asked.ask("GET", MAPS, limit=1, **{"continue": token})
    assert [i["metadata"]["name"] for i in rest.body["items"]] == ["b"]


def test_denials_reach_one_user_one_verb_and_one_namespace(server: KubeServer, asked: Kube) -> None:
    server.access.users["t"] = "system:serviceaccount:fallow:fallow"
    server.access.deny(
        "create", "pods/eviction", namespace="default", user="system:serviceaccount:fallow:fallow"
    )
    path = "/api/v1/namespaces/{}/pods/p/eviction"
    refused = asked.ask("POST", path.format("default"), {}, token="t")
    assert refused.code == 403
    assert refused.body["message"] == (
        'pods "p" is forbidden: User "system:serviceaccount:fallow:fallow" cannot create resource '
        '"pods/eviction" in API group "" in the namespace "default"'
    )
    assert asked.ask("POST", path.format("kube-system"), {}, token="t").code == 404
    assert asked.ask("POST", path.format("default"), {}).code == 404
    assert asked.ask("GET", "/api/v1/pods", token="t").code == 200


@pytest.mark.parametrize(
    ("media", "body", "code"),
    [
        ("application/json", b"{", 400),
        ("application/json", b"[]", 400),
        ("application/vnd.kubernetes.protobuf", b"k8s", 415),
        ("application/json", b'{"metadata": {"name": "from-json"}}', 201),
    ],
)
def test_bodies_must_be_what_they_say(asked: Kube, media: str, body: bytes, code: int) -> None:
    headers = {"Content-Type": media}
    answer = asked.pool.request("POST", asked.url + MAPS, body=body, headers=headers)
    assert answer.status == code
    if code != 201:
        assert json.loads(answer.data)["kind"] == "Status"


def test_a_patch_of_a_kind_we_do_not_know_is_refused_by_name(asked: Kube) -> None:
    asked.ask("POST", MAPS, {"metadata": {"name": "c"}})
    media = "application/riddle-patch+json"
    answer = asked.ask("PATCH", f"{MAPS}/c", {}, media=media, fieldManager="m")
    assert answer.code == 415
    assert "accepted media types include: application/merge-patch+json" in answer.body["message"]


def test_methods_that_a_path_does_not_have_are_refused(asked: Kube) -> None:
    assert asked.ask("PUT", MAPS, {}).code == 405
    assert asked.ask("GET", "/openapi/v2").code == 404
