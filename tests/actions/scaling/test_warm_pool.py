"""A warm pool: placeholders hold what is free, follow the hours, and yield to anybody's work."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from actions.cluster.client import KubeClient
from actions.scaling import manifests
from actions.scaling.executor import PAUSED, WarmPoolExecutor
from actions.scaling.manifests import WarmPool
from fallow.action_models import Change, Decision, Intent
from fallow.errors import RefusedError, UsageError
from simulator.cluster import nodes
from simulator.cluster.cluster import SimulatedCluster
from simulator.kube.server import KubeServer
from simulator.kube.store import ObjectStore
from tests.actions.places import door

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
SPACE = "fallow-warm-pool"
DAY = (*[2.0] * 8, *[6.0] * 10, *[2.0] * 6)
NAME = "fallow-warm-pool"


class Site:
    """A living cluster of 16 GPUs, with KEDA or without."""

    def __init__(self, store: ObjectStore, url: str) -> None:
        self.store, self.door = store, door(url, name="lab")
        self.now_s = NOW.timestamp()
        self.cluster = SimulatedCluster(store, nodes.build_nodes({"h100": 2}), seed=7)
        for space in (SPACE, "team-a"):
            store.create("Namespace", {"metadata": {"name": space}})

    def live(self, seconds: float = 600) -> None:
        end = self.now_s + seconds
        self.cluster.settle(self.now_s)
        while self.cluster.next_event() <= end:
            self.now_s = max(self.cluster.next_event(), self.now_s)
            self.cluster.settle(self.now_s)
        self.now_s = end
        self.cluster.settle(end)

    def running(self, space: str) -> int:
        pods = self.store.list("Pod", space)
        return sum(p["status"].get("phase") == "Running" for p in pods)

    def send(self, *changes: Change) -> None:
        for change in changes:
            assert self.door.send(change, dry_run=True).ok
            answer = self.door.send(change, dry_run=False)
            assert answer.ok, answer
            shown = self.door.get(change.read or change.path)
            for pointer, value in change.becomes.items():
                here: Any = shown
                for part in (p.replace("~1", "/") for p in pointer.split("/")[1:]):
                    here = (here or {}).get(part)
                assert here == value, pointer

    def deployment(self) -> Any:
        return self.store.get("Deployment", NAME, SPACE)

    def scaler(self) -> Any:
        return self.store.get("ScaledObject", NAME, SPACE)


@contextmanager
def living(*, keda: bool) -> Iterator[Site]:
    store = ObjectStore(NOW.timestamp, installed=("keda.sh",) if keda else ())
    with KubeServer(store) as server:
        yield Site(store, server.url)


def decided(by_hour: tuple[float, ...] = DAY, **stage: Any) -> Decision:
    answer = {"image": "registry.site/pause:1", "headroom_by_hour_utc": list(by_hour), **stage}
    subject = ("lab", "Fleet", "", "lab")
    return Decision(
        "d", "warm", "f", subject, "shrink-headroom", "act", "allow", (), NOW, parameters=answer
    )


def intend(door: KubeClient, *args: Any, **stage: Any) -> Intent:
    return WarmPoolExecutor().writes(decided(*args, **stage), door)


def pool(by_hour: tuple[float, ...] = DAY, **more: Any) -> WarmPool:
    return WarmPool(NAME, SPACE, "pause", by_hour, **more)


def test_placeholders_hold_free_gpus_yield_at_once_and_come_back() -> None:
    with living(keda=False) as site:
        site.send(*intend(site.door, (16.0,) * 24).changes)
        site.live()
        assert site.running(SPACE) == 16, "every GPU there is"
        limits = {"nvidia.com/gpu": "8", "cpu": "4", "memory": "16Gi"}
        main = {"name": "main", "image": "work:1", "resources": {"limits": limits}}
        taints = [{"key": "nvidia.com/gpu", "operator": "Exists"}]
        spec = {"containers": [main], "restartPolicy": "Never", "tolerations": taints}
        job = {"parallelism": 1, "completions": 1, "template": {"spec": spec}}
        site.store.create("Job", {"metadata": {"name": "j", "namespace": "team-a"}, "spec": job})
        site.live()
        assert (site.running("team-a"), site.running(SPACE)) == (1, 8)
        for pod in site.store.list("Pod", "team-a"):
            site.cluster.finish(pod["metadata"]["uid"], site.now_s)
        site.live()
        assert site.running(SPACE) == 16


def test_undone_no_placeholder_runs_and_nothing_was_deleted() -> None:
    with living(keda=False) as site:
        intent = intend(site.door)
        assert [c.method for c in (*intent.changes, *intent.undo)] == ["POST", "POST", "PATCH"]
        site.send(*intent.changes)
        site.live()
        assert site.running(SPACE) == 2, "the median hour's"
        site.send(*intent.undo)
        site.live()
        assert (site.running(SPACE), site.deployment()["spec"]["replicas"]) == (0, 0)
        assert "nothing is deleted" in intent.lost
        again = intend(site.door)
        site.send(*again.changes)
        assert site.deployment()["spec"]["replicas"] == 2
        with pytest.raises(RefusedError, match="2 placeholders stand there already"):
            intend(site.door)


def test_with_keda_a_schedule_follows_the_hours_and_undo_pauses_it() -> None:
    with living(keda=True) as site:
        intent = intend(site.door, most_gpus=4)
        site.send(*intent.changes)
        triggers = [t["metadata"] for t in site.scaler()["spec"]["triggers"]]
        assert [(t["start"], t["end"], t["desiredReplicas"]) for t in triggers] == [
            ("0 8 * * *", "0 18 * * *", "4"),
            ("0 18 * * *", "0 8 * * *", "2"),
        ]
        assert site.deployment()["spec"]["replicas"] == 0
        site.send(*intent.undo)
        assert site.scaler()["metadata"]["annotations"][PAUSED] == "0"
        resumed = intend(site.door, most_gpus=4)
        before = {k: v for k, v in site.scaler().items() if k == "spec"}
        site.send(*resumed.changes)
        assert PAUSED not in (site.scaler()["metadata"].get("annotations") or {})
        with pytest.raises(RefusedError, match="follow this schedule already"):
            intend(site.door, most_gpus=4)
        changed = intend(site.door, (3.0,) * 24)
        site.send(*changed.changes)
        assert site.scaler()["spec"]["minReplicaCount"] == 3
        site.send(*changed.undo)
        assert site.scaler()["spec"] == before["spec"]


def test_what_bears_the_name_and_is_not_ours_is_left_alone() -> None:
    with living(keda=False) as site:
        labels = {"app": "x"}
        body = {
            "metadata": {"labels": labels},
            "spec": {"containers": [{"name": "a", "image": "b"}]},
        }
        spec = {"replicas": 1, "selector": {"matchLabels": labels}, "template": body}
        meta = {"name": NAME, "namespace": SPACE}
        site.store.create("Deployment", {"metadata": meta, "spec": spec})
        with pytest.raises(RefusedError, match="somebody else's"):
            intend(site.door)
        with pytest.raises(RefusedError, match="there is no namespace nowhere"):
            intend(site.door, namespace="nowhere")


@pytest.mark.parametrize(
    ("stage", "why"),
    [
        ({"image": None}, "not described as it must be"),
        ({"headroom_by_hour_utc": [1.0]}, "24 hours"),
        ({"gpus_per_pod": 0}, "one GPU or more"),
        ({"metric": "up"}, "cannot follow 'up'"),
        ({"metric": "fallow_gpus"}, "cannot follow 'fallow_gpus'"),
        ({"metric": 'fallow_x") or vector(9', "prometheus": "http://p"}, "cannot follow"),
    ],
)
def test_what_is_not_said_right_is_one_clear_line(stage: dict[str, Any], why: str) -> None:
    with living(keda=False) as site, pytest.raises(UsageError, match=why):
        intend(site.door, **stage)


def test_placeholders_are_last_of_all_and_nobody_is_to_stop_them() -> None:
    made = manifests.build_placeholders(pool(node_selector={"pool": "h100"}), 3)
    pod = made["spec"]["template"]["spec"]
    assert pod["priorityClassName"] == manifests.build_priority_class()["metadata"]["name"]
    assert manifests.build_priority_class()["preemptionPolicy"] == "Never"
    assert -10 <= manifests.build_priority_class()["value"] < 0
    assert pod["terminationGracePeriodSeconds"] == 0
    assert pod["nodeSelector"] == {"pool": "h100"}
    assert "fallow.dev/protect" in made["spec"]["template"]["metadata"]["annotations"]


def test_a_metric_of_ours_may_scale_it_instead() -> None:
    one = pool(metric="fallow_gpus", prometheus="http://prometheus:9090", gpus_per_pod=2)
    trigger = manifests.build_scaler(one)["spec"]["triggers"][0]["metadata"]
    assert (trigger["query"], trigger["threshold"]) == ("max(fallow_gpus)", "2")
    with living(keda=False) as site:
        stage = {"metric": "fallow_gpus", "prometheus": "http://prometheus:9090"}
        note = intend(site.door, **stage).notes[-1]
        (shown,) = yaml.safe_load_all(note.partition("\n")[2])
        assert shown["kind"] == "HorizontalPodAutoscaler"
        answer = site.door.get(f"/api/v1/namespaces/{SPACE}")
        assert answer is not None
        space = site.door.collection("HorizontalPodAutoscaler", "autoscaling", SPACE)
        from_api = site.store.create("HorizontalPodAutoscaler", shown, dry_run=True)
        assert space is not None
        assert from_api["spec"]["metrics"][0]["external"]["metric"]["name"] == "fallow_gpus"


@given(st.lists(st.floats(0, 40), min_size=24, max_size=24), st.integers(1, 8))
def test_every_hour_of_the_day_gets_what_was_advised(by_hour: list[float], each: int) -> None:
    one = pool(tuple(by_hour), gpus_per_pod=each)
    spec = manifests.build_by_schedule(one)["spec"]
    for hour in range(24):
        wanted = one.replicas(hour)
        assert (wanted - 1) * each < by_hour[hour] <= wanted * each + 1e-6 or wanted == 0
        active = [t for a, b, t in manifests.list_stretches(one) if _within(hour, a, b)]
        assert max([spec["minReplicaCount"], *active]) == wanted
    assert spec["maxReplicaCount"] == max(1, one.most)
    shown = list(yaml.safe_load_all(manifests.to_yaml([manifests.build_by_schedule(one)])))
    assert shown[0]["spec"] == spec


def _within(hour: int, begin: int, end: int) -> bool:
    return begin <= hour < end if begin < end else hour >= begin or hour < end
