"""On a cluster that lives: pods go, GPUs are free, and the undo brings the workload back."""

from collections.abc import Iterator
from typing import Any

import pytest

from actions.cluster.jupyterhub import JupyterHubClient
from actions.cluster.obstacles import find_obstacles
from actions.cluster.owner_chains import OwnerChainReader
from actions.executors import choose_executor
from fallow.action_models import Intent, Target
from fallow.kube.objects import get_uid
from fallow.kube.owner_chains import UnknownOwner
from fallow.settings.actions import JupyterHubSettings
from simulator.kube.server import KubeServer
from tests.actions.places import bare, current, door, says
from tests.actions.reclaim.examples import decided
from tests.servers.jupyterhub import TOKEN, jupyterhub
from tests.simulator.cluster.conftest import Small, deployment, job, template

SETTLED_S = 900.0
SPACE = "team-a"


class Living:
    """A small cluster, its API over HTTP, and our door to it."""

    def __init__(self, small: Small, server: KubeServer) -> None:
        self.small, self.server = small, server
        self.door = door(server.url)

    def run(self) -> None:
        self.small.run(SETTLED_S)

    def intent(self, kind: str, verb: str, name: str = "x") -> Intent:
        decision = decided(kind, SPACE, name, verb)
        return choose_executor(decision).writes(decision, self.door)

    def send(self, intent: Intent) -> None:
        for change in intent.changes:
            assert self.door.send(change, dry_run=True).ok
        for change in intent.changes:
            answer = self.door.send(change, dry_run=False)
            assert answer.ok, answer

    def undo(self, intent: Intent) -> None:
        for change in intent.undo:
            assert says(self.door, change, change.was)
            answer = self.door.send(current(self.door, change), dry_run=False)
            assert answer.ok, answer

    def uids(self) -> set[str]:
        return {p["metadata"]["uid"] for p in self.small.pods()}


@pytest.fixture
def living() -> Iterator[Living]:
    small = Small({"h100": 2})
    with KubeServer(small.store) as server:
        yield Living(small, server)


def pod_spec(gpus: int = 1) -> Any:
    return template(gpus)["spec"]


def trained(specs: str, chief: str) -> Any:
    roles = {
        chief: {"replicas": 1, "template": template(1)},
        "Worker": {"replicas": 2, "template": template(1)},
    }
    return {specs: roles}


def rayed() -> Any:
    group = {"groupName": "g", "replicas": 2, "template": template(1)}
    return {"headGroupSpec": {"template": template(0)}, "workerGroupSpecs": [group]}


TOLERATION = {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}
SET = {"replicas": 2, "selector": {"matchLabels": {"app": "s"}}, "serviceName": "s"}
GROUPS = {"size": 2, "workerTemplate": template(1)}
KSERVE: Any = {"predictor": {"minReplicas": 2, "containers": pod_spec()["containers"]}}
NODES = {"numNodes": 2, "resourcesPerNode": {"limits": {"nvidia.com/gpu": "1"}}}
CASES: tuple[tuple[str, str, Any, str, int], ...] = (
    ("Notebook", "Notebook", {"template": {"spec": pod_spec()}}, "stop", 1),
    ("Workspace", "Workspace", {"podTemplate": template(1)}, "stop", 1),
    ("Deployment", "Deployment", deployment(3), "scale to zero", 3),
    ("StatefulSet", "StatefulSet", {**SET, "template": template(1, labels={"app": "s"})},
     "scale to zero", 2),
    ("Job", "Job", job(1, 2), "suspend", 2),
    ("JobSet", "JobSet", {"replicatedJobs": [{"name": "r", "template": {"spec": job(1, 2)}}]},
     "suspend", 2),
    ("TrainJob", "TrainJob", {"trainer": NODES}, "suspend", 2),
    ("PyTorchJob", "PyTorchJob", trained("pytorchReplicaSpecs", "Master"), "suspend", 3),
    ("TFJob", "TFJob", trained("tfReplicaSpecs", "Chief"), "suspend", 3),
    ("MPIJob", "MPIJob", trained("mpiReplicaSpecs", "Launcher"), "suspend", 3),
    ("RayCluster", "RayCluster", rayed(), "suspend", 2),
    ("RayJob", "RayJob", {"shutdownAfterJobFinishes": True, "rayClusterSpec": rayed()},
     "suspend", 2),
    ("InferenceService", "InferenceService", KSERVE, "stop", 2),
    ("LeaderWorkerSet", "LeaderWorkerSet", {"replicas": 2, "leaderWorkerTemplate": GROUPS},
     "scale to zero", 4),
    ("VolcanoJob", "Job.batch.volcano.sh",
     {"tasks": [{"name": "t", "replicas": 2, "template": template(1)}]}, "abort", 2),
)  # fmt: skip


@pytest.mark.parametrize(("kind", "key", "spec", "verb", "gpus"), CASES, ids=[c[0] for c in CASES])
def test_pods_go_gpus_are_free_and_the_undo_brings_them_back(  # noqa: PLR0917
    living: Living, kind: str, key: str, spec: Any, verb: str, gpus: int
) -> None:
    living.small.make(key, "x", spec)
    living.run()
    assert living.small.held() == gpus
    before, uids = living.small.get(key, "x"), living.uids()

    chains = [OwnerChainReader(living.door).chain(p) for p in living.small.pods()]
    owners = {None if isinstance(c, UnknownOwner) else get_uid(c[-1]) for c in chains}
    assert owners == {before["metadata"]["uid"]}, "the one object that is acted upon"

    intent = living.intent(kind, verb)
    assert {h.uid for h in intent.frees} == uids
    assert sum(h.gpus for h in intent.frees) == gpus
    assert all(h.node for h in intent.frees if h.gpus)
    assert find_obstacles(before, living.door, intent=intent) == ()

    living.send(intent)
    living.run()
    assert living.small.held() == 0
    assert living.uids() & uids == set()
    assert all(says(living.door, c, c.becomes) for c in intent.changes)

    living.undo(intent)
    living.run()
    assert living.small.held() == gpus
    after = living.small.get(key, "x")
    assert bare({**after, "status": None}) == bare({**before, "status": None})


def test_the_device_that_is_freed_goes_to_whoever_waits(living: Living) -> None:
    living.small.make("Deployment", "x", deployment(16))
    living.run()
    living.small.make("Job", "waits", job(8))
    living.run()
    assert living.small.get("Job", "waits")["status"]["ready"] == 0
    living.send(living.intent("Deployment", "scale to zero"))
    living.run()
    assert living.small.get("Job", "waits")["status"]["ready"] == 1


def test_a_volcano_job_survives_two_stops_and_the_third_is_refused(living: Living) -> None:
    """Regression 14 on a cluster: the resume after the third stop would fail the job."""
    from fallow.errors import RefusedError  # noqa: PLC0415

    tasks = [{"name": "t", "replicas": 1, "template": template(1)}]
    living.small.make("Job.batch.volcano.sh", "x", {"tasks": tasks})
    living.run()
    for _ in range(2):
        intent = living.intent("VolcanoJob", "abort")
        living.send(intent)
        living.run()
        living.undo(intent)
        living.run()
        assert living.small.held() == 1
    with pytest.raises(RefusedError, match="2 of 3 retries"):
        living.intent("VolcanoJob", "abort")


def queued(living: Living) -> dict[str, Any]:
    amounts = {"nvidia.com/gpu": 8, "cpu": 1000, "memory": "10Ti"}
    resources = [{"name": k, "nominalQuota": v} for k, v in amounts.items()]
    flavors = [{"name": "default", "resources": resources}]
    group = {"coveredResources": list(amounts), "flavors": flavors}
    living.small.make("ClusterQueue", "q", {"resourceGroups": [group]}, namespace="")
    living.small.make("LocalQueue", "q", {"clusterQueue": "q"})
    return {"labels": {"kueue.x-k8s.io/queue-name": "q"}}


@pytest.mark.parametrize(
    ("kind", "spec"),
    [("Job", job(2)), ("PyTorchJob", trained("pytorchReplicaSpecs", "Master"))],
)
def test_under_kueue_the_own_switch_is_undone_and_the_workload_holds(
    living: Living, kind: str, spec: Any
) -> None:
    """Regression 11 on a cluster: what is suspended by hand runs again soon."""
    living.small.make(kind, "x", spec, **queued(living))
    living.run()
    gpus = living.small.held()
    assert gpus
    pointer = ("runPolicy", "suspend") if kind == "PyTorchJob" else ("suspend",)
    by_hand: Any = True
    for key in reversed(pointer):
        by_hand = {key: by_hand}
    living.small.patch(kind, "x", {"spec": by_hand})
    living.run()
    assert living.small.held() == gpus, "unsuspended again"
    intent = living.intent(kind, "suspend")
    obj = living.small.get(kind, "x")
    assert find_obstacles(obj, living.door, intent=intent) == ()
    living.send(intent)
    living.run()
    assert living.small.held() == 0
    living.undo(intent)
    living.run()
    assert living.small.held() == gpus


def test_a_switch_that_kueue_would_undo_is_named_as_such(living: Living) -> None:
    living.small.make("Job", "x", job(2), **queued(living))
    living.run()
    obj = living.small.get("Job", "x")
    plain = Intent(_target(living, obj), "suspend", (), ())
    assert [r.gate for r in find_obstacles(obj, living.door, intent=plain)] == ["kueue"]


def _target(living: Living, obj: Any) -> Target:
    meta = obj["metadata"]
    return Target(living.door.name, obj["apiVersion"], obj["kind"], SPACE, "x", meta["uid"])


def test_keda_and_hpa_leave_what_we_stopped_alone(living: Living) -> None:
    """Regression 17: the HPA is kept; KEDA is paused at none and freed again."""
    small = living.small
    small.make("Deployment", "x", deployment(3))
    small.make("Deployment", "k", deployment(2, app="k"))
    target = {"kind": "Deployment", "name": "x"}
    small.make(
        "HorizontalPodAutoscaler",
        "h",
        {"scaleTargetRef": target, "minReplicas": 2, "maxReplicas": 5},
    )
    small.make("ScaledObject", "s", {"scaleTargetRef": {"name": "k"}, "minReplicaCount": 2})
    living.run()
    assert small.held() == 5
    spec = small.get("HorizontalPodAutoscaler", "h")["spec"]
    intents = [living.intent("Deployment", "scale to zero", name) for name in ("x", "k")]
    assert intents[1].changes[0].target.kind == "ScaledObject"
    for intent in intents:
        living.send(intent)
    living.run()
    assert small.held() == 0
    for intent in intents:
        living.undo(intent)
    living.run()
    assert small.held() == 5
    assert small.get("HorizontalPodAutoscaler", "h")["spec"] == spec
    assert "annotations" not in small.get("ScaledObject", "s")["metadata"]


def test_what_gitops_reverts_is_seen_and_named(living: Living) -> None:
    """Regression 20: one attempt; then it is not sticking, and whose doing that is."""
    from actions.loop.change_state import compare_object, find_last_writer  # noqa: PLC0415

    living.small.make("Deployment", "x", deployment(2))
    living.small.cluster.track("Deployment", SPACE, "x", {"spec": {"replicas": 2}}, delay_s=60)
    living.run()
    intent = living.intent("Deployment", "scale to zero")
    living.send(intent)
    living.small.run(30)
    (change,) = intent.changes
    assert compare_object(change, living.door.get(change.read)) == "becomes"
    living.run()
    found = living.door.get(change.read) or {}
    assert compare_object(change, found) == "was"
    assert (find_last_writer(found, ["/spec/replicas"]) or ("",))[0] == "argocd-controller"
    again = find_obstacles(found, living.door, intent=living.intent("Deployment", "scale to zero"))
    assert [r.gate for r in again] == ["gitops"], "its field manager is on record now"


def test_a_cron_job_stops_with_the_job_it_began(living: Living) -> None:
    spec = {"schedule": "0 0 1 1 *", "jobTemplate": {"spec": job(2)}}
    cron = living.small.make("CronJob", "x", spec)
    reference = {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "name": "x",
        "uid": cron["metadata"]["uid"],
        "controller": True,
    }
    living.small.make("Job", "x-1", job(2), ownerReferences=[reference])
    living.run()
    intent = living.intent("CronJob", "suspend")
    assert sum(h.gpus for h in intent.frees) == 2
    living.send(intent)
    living.run()
    assert living.small.held() == 0
    living.undo(intent)
    living.run()
    assert living.small.held() == 2


def test_a_budget_holds_an_eviction_back(living: Living) -> None:
    bare_pod = {**pod_spec(), "tolerations": [TOLERATION]}
    for name in ("x", "y"):
        notes: Any = {"annotations": {"fallow.dev/evict": "true"}, "labels": {"app": "b"}}
        living.small.make("Pod", name, bare_pod, **notes)
    budget = {"minAvailable": 1, "selector": {"matchLabels": {"app": "b"}}}
    living.run()
    living.small.make("PodDisruptionBudget", "b", budget)
    living.run()
    living.send(living.intent("Pod", "evict"))
    living.run()
    assert living.small.names() == ["y"]
    (second,) = living.intent("Pod", "evict", "y").changes
    answer = living.door.send(second, dry_run=True)
    assert (answer.verdict, answer.cause) == ("throttled", "budget")
    assert living.small.names() == ["y"]


def test_a_hub_stops_its_own_pod_and_starts_it_again(living: Living) -> None:
    notes = {"hub.jupyter.org/username": "ada"}
    labels = {"component": "singleuser-server"}

    def start() -> None:
        meta: Any = {"annotations": notes, "labels": labels}
        spec = {**pod_spec(), "tolerations": [TOLERATION]}
        living.small.make("Pod", "jupyter-ada", spec, **meta)

    start()
    living.run()
    assert living.small.held() == 1
    with jupyterhub() as hub:
        hub.start("ada")

        def changed(_user: str, _name: str, runs: bool) -> None:
            if runs:
                start()
            else:
                living.small.store.delete("Pod", "jupyter-ada", SPACE)

        hub.changed = changed
        way = JupyterHubClient(JupyterHubSettings.model_validate({"url": hub.url, "token": TOKEN}))
        intent = living.intent("JupyterServer", "stop", "ada")
        assert way.send(intent.changes[0], dry_run=True).ok
        assert way.send(intent.changes[0], dry_run=False).ok
        living.run()
        assert living.small.held() == 0
        assert way.send(intent.undo[0], dry_run=False).ok
        living.run()
        assert living.small.held() == 1
