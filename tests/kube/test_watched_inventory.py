"""While it watches, the collector lists to begin and after 410 only, and sees what lives briefly.

The API server is the stub, over HTTP, with a clock that the test moves; the pauses between two
attempts are short.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from collectors.kube.collection import Collection, ObjectChange
from collectors.kube.collector import KubernetesCollector
from collectors.kube.list_watch import WatchStep
from collectors.kube.shapes import Meta, Pod, PodSpec, PodStatus
from fallow.settings.collectors import KubernetesSettings
from fallow.window import Window
from tests.kube.conftest import Cluster
from tests.kube.objects import node, pod

GPU = {"nvidia.com/gpu": "1"}
WAIT_S = 20.0
"""Only a fault waits so long."""
END = datetime(2100, 1, 1)  # noqa: DTZ001  (rows bear no zone)
Row = dict[str, Any]


class Site:
    """A collector that watches a cluster, and the rows that it gave, newest values last."""

    def __init__(self, cluster: Cluster, now: datetime) -> None:
        self.cluster, self.now = cluster, now
        self.stop = threading.Event()
        self.collector = KubernetesCollector(
            KubernetesSettings(page_size=2), "c", lambda: self.now, api=None
        )
        self.pods: dict[str, Row] = {}
        self.scrapes: list[Row] = []

    def take(self, batches: Any) -> None:
        for batch in batches:
            for row in batch.rows.to_pylist():
                if batch.table == "scrape":
                    self.scrapes.append(row)
                if batch.table == "pod":
                    known = self.pods.setdefault(row["pod"], {})
                    first = min(row["first_seen"] or row["last_seen"], known.get("first_seen", END))
                    known.update({k: v for k, v in row.items() if v is not None})
                    known["first_seen"] = first  # as the warehouse keeps it

    def collect(self) -> None:
        self.take(self.collector.collect(Window.last(timedelta(minutes=2), now=self.now)))

    def changes(self) -> None:
        with self.collector.changes() as batches:
            self.take(batches)

    def until(self, what: Callable[[], object]) -> None:
        """Store changes until something is so."""
        end = time.monotonic() + WAIT_S
        while not what():
            assert time.monotonic() < end, (self.pods, self.scrapes[-3:])
            time.sleep(0.01)
            self.changes()

    def synced(self) -> None:
        watches = self.collector._watches
        assert watches is not None
        self.until(lambda: watches.usable)

    def after(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)

    def lists(self, of: str = "/api/v1/pods") -> int:
        """Return how often a kind was listed from its beginning."""
        wanted = [a for a in self.cluster.requests if a.path == of and not a.query.get("watch")]
        return len([a for a in wanted if not a.query.get("continue")])

    @contextmanager
    def running(self) -> Iterator["Site"]:
        with self.collector.watch(self.stop, lambda _s: self.stop.wait(0.02)):
            self.synced()
            yield self


@pytest.fixture
def site(cluster: Cluster, now: datetime) -> Iterator[Site]:
    cluster.serve("apps", "v1", "replicasets", "ReplicaSet")
    cluster.serve("apps", "v1", "deployments", "Deployment")
    cluster.put("Namespace", {"metadata": {"name": "ml", "labels": {"team": "vision"}}})
    cluster.put("Node", node("n0", capacity={"nvidia.com/gpu": "8"}))
    cluster.put("Pod", pod("first", limits=GPU))
    with Site(cluster, now).running() as one:
        yield one


def naive(instant: datetime) -> datetime:
    return instant.astimezone(UTC).replace(tzinfo=None)


def test_a_pod_that_lived_for_30_seconds_is_in_the_inventory_between_two_lists(site: Site) -> None:
    site.collect()
    begun = site.now
    site.after(20)
    site.cluster.put("Pod", pod("brief", limits=GPU, phase="Running"))
    site.until(lambda: "brief" in site.pods)
    site.after(30)
    site.cluster.delete("Pod", "brief", "ml")
    site.until(lambda: "deleted_at" in site.pods["brief"])
    site.after(60)
    site.collect()
    row = site.pods["brief"]
    assert (row["gpu_request"], row["team"], row["node"]) == (1.0, "vision", "n0")
    assert row["first_seen"] == naive(begun + timedelta(seconds=20))
    assert row["finished_at"] == naive(begun + timedelta(seconds=50))
    assert "deleted_at" not in site.pods["first"]


def test_a_pod_that_came_and_went_before_anything_was_stored_is_stored_with_its_life(
    site: Site,
) -> None:
    begun = site.now
    site.cluster.put("Pod", pod("brief", limits=GPU))
    kept = site.collector._watches
    assert kept is not None
    wait(lambda: any(p.metadata.name == "brief" for p in (kept.pods.current() or ([],))[0]))
    site.after(30)
    site.cluster.delete("Pod", "brief", "ml")
    wait(lambda: all(p.metadata.name != "brief" for p in (kept.pods.current() or ([],))[0]))
    site.after(45)
    site.changes()
    row = site.pods["brief"]
    assert row["first_seen"] == naive(begun)
    assert row["finished_at"] == naive(begun + timedelta(seconds=30))


def test_a_list_begins_and_none_follows(site: Site) -> None:
    for _ in range(3):
        site.after(120)
        site.cluster.bookmark()
        site.collect()
    assert site.lists() == site.lists("/api/v1/nodes") == 1
    looked = [r for r in site.scrapes if r["target"].endswith("/api/v1/pods")]
    assert all(r["up"] for r in looked)
    assert len(looked) == 3


def test_what_is_unchanged_was_last_seen_when_the_server_last_spoke(site: Site) -> None:
    site.collect()
    spoke = site.now
    site.after(600)
    site.collect()
    assert site.pods["first"]["last_seen"] == naive(spoke)
    silent = [r for r in site.scrapes if r["target"].endswith("/api/v1/pods")][-1]
    assert (silent["up"], silent["error"]) == (False, "the watch said nothing for 0:10:00")
    site.cluster.bookmark()
    site.until(lambda: site.collector._watches.pods.current()[1] == site.now)  # type: ignore[union-attr,index]
    site.collect()
    assert site.pods["first"]["last_seen"] == naive(site.now)


def test_an_expiry_in_the_stream_lists_anew_and_loses_nobody(site: Site) -> None:
    site.cluster.put("Pod", pod("goes", limits=GPU))
    site.until(lambda: "goes" in site.pods)
    with site.cluster.store.changed:  # no watch can read in between
        site.cluster.delete("Pod", "goes", "ml")
        site.cluster.put("Pod", pod("comes", limits=GPU))
        site.cluster.forget()
    site.until(lambda: "comes" in site.pods and "deleted_at" in site.pods["goes"])
    assert site.lists() == 2


def test_an_expiry_in_the_middle_of_the_list_after_it_is_begun_anew(site: Site) -> None:
    for n in range(5):
        site.cluster.put("Pod", pod(f"p{n}", limits=GPU))
    site.until(lambda: {f"p{n}" for n in range(5)} <= set(site.pods))
    site.cluster.faults.expire_tokens, site.cluster.faults.fresh_tokens = 1, False
    with site.cluster.store.changed:
        site.cluster.delete("Pod", "p0", "ml")
        site.cluster.forget()
    site.until(lambda: "deleted_at" in site.pods["p0"])
    assert [n for n in site.pods if "deleted_at" in site.pods[n]] == ["p0"]


def test_an_api_that_is_away_for_ten_minutes_is_asked_again_with_pauses_and_not_listed(
    site: Site,
) -> None:
    site.collect()
    site.cluster.put("Pod", pod("before", limits=GPU))
    site.until(lambda: "before" in site.pods)
    away = site.collector._watches
    assert away is not None
    with site.cluster.away():
        site.until(lambda: all(p.failures >= 6 for p in away.progress.values()))
        site.after(600)
    site.cluster.put("Pod", pod("after", limits=GPU))
    site.cluster.delete("Pod", "before", "ml")
    site.until(lambda: "after" in site.pods and "deleted_at" in site.pods["before"])
    assert site.lists() == 1
    assert [r["error"] for r in site.scrapes if not r["up"]]


def test_without_the_right_to_watch_it_lists(cluster: Cluster, now: datetime) -> None:
    cluster.put("Pod", pod("first", limits=GPU))
    cluster.access.deny("watch", "pods")
    site = Site(cluster, now)
    with site.collector.watch(site.stop, lambda _s: site.stop.wait(0.02)):
        watches = site.collector._watches
        assert watches is not None
        wait(lambda: watches.progress["/api/v1/pods"].refused == 403)
        cluster.put("Pod", pod("second", limits=GPU))
        site.collect()
    assert "second" in site.pods


def test_changes_that_were_not_stored_are_given_again(site: Site) -> None:
    site.cluster.put("Pod", pod("late", limits=GPU))
    kept = site.collector._watches
    assert kept is not None
    wait(lambda: any(p.metadata.name == "late" for p in (kept.pods.current() or ([],))[0]))
    with pytest.raises(OSError, match="disk"), site.collector.changes():
        raise OSError("the disk is full")
    site.changes()
    assert "late" in site.pods


def test_the_end_leaves_no_thread(cluster: Cluster, now: datetime) -> None:
    before = threading.active_count()
    site = Site(cluster, now)
    with site.running():
        assert threading.active_count() >= before + 2
    assert not [t for t in threading.enumerate() if t.name.startswith("watch /api")]


def test_a_watch_waits_for_its_reader_when_too_much_waits() -> None:
    stop = threading.Event()
    kept: Collection[Pod] = Collection(lambda: datetime(2026, 1, 1, tzinfo=UTC), stop, waiting=3)

    def come() -> None:
        for n in range(5):
            made = Pod(Meta(f"p{n}", uid=str(n)), PodSpec(), PodStatus())
            kept.apply(WatchStep("ADDED", made))

    thread = threading.Thread(target=come, daemon=True)
    thread.start()
    wait(lambda: len(kept._changes) == 3)
    thread.join(0.2)
    assert thread.is_alive()
    taken: list[ObjectChange[Pod]] = kept.take()
    thread.join(WAIT_S)
    assert [c.object.metadata.name for c in (*taken, *kept.take())] == [f"p{n}" for n in range(5)]


def wait(what: Callable[[], object]) -> None:
    end = time.monotonic() + WAIT_S
    while not what():
        assert time.monotonic() < end
        time.sleep(0.01)
