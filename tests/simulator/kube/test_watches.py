"""A watch in-process: the order of what it tells, whenever its reader asks."""

from simulator.kube.paths import parse_path
from simulator.kube.server import KubeServer
from simulator.kube.store import ObjectStore
from simulator.kube.watches import CUT, ApiWatch


def opened(server: KubeServer, **query: str) -> ApiWatch:
    store = server.store
    at = parse_path(store.catalog, "/api/v1/pods")
    return ApiWatch(store, at, {"resourceVersion": str(store.version), **query}, server.faults)


def put(server: KubeServer, name: str) -> None:
    server.store.restore("Pod", {"metadata": {"name": name, "namespace": "a", "uid": name}})


def test_a_bookmark_asked_for_while_an_event_is_told_has_the_version_then() -> None:
    server = KubeServer(ObjectStore(lambda: 0.0, installed=()))
    lines = opened(server, allowWatchBookmarks="true").lines()
    put(server, "p0")
    assert next(lines)["type"] == "ADDED"  # type: ignore[index]
    marked = server.bookmark()
    server.faults.cut_streams = 1
    rest = [line for line in lines if line is not None]
    assert [line["type"] for line in rest] == ["BOOKMARK", CUT["type"]]
    assert rest[0]["object"]["metadata"]["resourceVersion"] == str(marked)
    server.close()


def test_a_watch_without_bookmarks_breaks_off_too() -> None:
    server = KubeServer(ObjectStore(lambda: 0.0, installed=()))
    lines = opened(server).lines()
    server.bookmark()
    server.faults.cut_streams = 1
    assert [line for line in lines if line is not None] == [CUT]
    server.close()
