"""A watch misses nothing: bookmarks, both forms of 410, cut streams, refusals."""

import threading
from collections.abc import Callable, Iterator

import pytest

from collectors.kube.list_watch import ListWatch, WatchStep
from collectors.kube.shapes import Partial
from fallow.kube.api import ApiConnection
from tests.kube.conftest import Cluster

PODS = "/api/v1/pods"


def put(cluster: Cluster, name: str) -> None:
    cluster.put("Pod", {"metadata": {"name": name, "namespace": "a"}})


class Watched:
    """A list and watch of pods, read step by step."""

    def __init__(self, api: ApiConnection) -> None:
        self.failures: list[str] = []
        self.then: Callable[[], None] = lambda: None
        """What happens to the cluster once a failure is said."""
        self.stop = threading.Event()
        self.watch = ListWatch(api, PODS, Partial, limit=2, on_failure=self._failed)
        self._steps: Iterator[WatchStep[Partial]] = self.watch.steps(self.stop)

    def _failed(self, said: str) -> None:
        self.failures.append(said)
        self.then()

    def next(self, count: int = 1) -> list[str]:
        """Return the next steps as `KIND name`."""
        out = []
        for _ in range(count):
            step = next(self._steps)
            while step.kind == "LISTING":
                step = next(self._steps)
            out.append(f"{step.kind} {step.object.metadata.name if step.object else ''}".strip())
        return out


@pytest.fixture
def watched(api: ApiConnection) -> Iterator[Watched]:
    one = Watched(api)
    yield one
    one.stop.set()
    one.watch.close()


def test_a_list_comes_first_and_then_every_change(cluster: Cluster, watched: Watched) -> None:
    put(cluster, "p0")
    assert watched.next(2) == ["LISTED p0", "SYNCED"]
    put(cluster, "p1")
    put(cluster, "p0")
    cluster.delete("Pod", "p1", "a")
    assert watched.next(3) == ["ADDED p1", "MODIFIED p0", "DELETED p1"]


def versions_watched(cluster: Cluster) -> list[str]:
    return [a.query["resourceVersion"] for a in cluster.requests if a.query.get("watch")]


def test_a_broken_stream_goes_on_from_the_last_bookmark(cluster: Cluster, watched: Watched) -> None:
    put(cluster, "p0")
    assert watched.next(2) == ["LISTED p0", "SYNCED"]
    put(cluster, "p1")
    assert watched.next() == ["ADDED p1"]
    marked = cluster.bookmark()
    cluster.faults.cut_streams = 1
    watched.then = lambda: put(cluster, "p2")
    assert watched.next() == ["ADDED p2"]
    assert versions_watched(cluster)[-1] == str(marked)
    assert len(watched.failures) == 1
    assert "no answer" in watched.failures[0]


def test_an_expiry_inside_the_stream_lists_anew(
    cluster: Cluster, watched: Watched, slept: list[float]
) -> None:
    put(cluster, "p0")
    assert watched.next(2) == ["LISTED p0", "SYNCED"]
    put(cluster, "p1")
    assert watched.next() == ["ADDED p1"]
    cluster.faults.expire_streams = 1
    assert watched.next(3) == ["LISTED p0", "LISTED p1", "SYNCED"]
    assert watched.failures == []
    assert len(slept) == 1


def test_an_expiry_before_the_stream_lists_anew(cluster: Cluster, watched: Watched) -> None:
    put(cluster, "p0")
    assert watched.next(2) == ["LISTED p0", "SYNCED"]
    cluster.faults.refuse_watches = True
    cluster.forget()
    assert watched.next(2) == ["LISTED p0", "SYNCED"]
    assert len(versions_watched(cluster)) == 1  # refused; the next watch opens with the next step


def test_a_refused_list_is_said_and_tried_again(cluster: Cluster, watched: Watched) -> None:
    cluster.forbid("pods")

    def allow() -> None:
        cluster.access.denials.clear()

    put(cluster, "p0")
    watched.then = allow
    assert watched.next(2) == ["LISTED p0", "SYNCED"]
    assert watched.failures[0].startswith("forbidden: /api/v1/pods: pods is forbidden")


def test_closing_ends_a_silent_watch_at_once(cluster: Cluster, watched: Watched) -> None:
    put(cluster, "p0")
    assert watched.next(2) == ["LISTED p0", "SYNCED"]
    put(cluster, "p1")
    assert watched.next() == ["ADDED p1"]
    ended = threading.Event()

    def drain() -> None:
        with pytest.raises(StopIteration):
            watched.next()
        ended.set()

    threading.Thread(target=drain, daemon=True).start()
    assert not ended.wait(0.2)
    watched.stop.set()
    watched.watch.close()
    assert ended.wait(5)


def test_watches_ask_for_bookmarks_and_an_end(cluster: Cluster, watched: Watched) -> None:
    put(cluster, "p0")
    watched.next(2)
    put(cluster, "p1")
    watched.next()
    (wanted,) = [a for a in cluster.requests if a.query.get("watch")]
    assert wanted.query["allowWatchBookmarks"] == "true"
    assert int(wanted.query["timeoutSeconds"]) > 0
