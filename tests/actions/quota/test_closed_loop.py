"""The whole way round on a simulated cluster: rows, a proposal, the writes, rows again.

Waiting falls after the rebalance, or it is taken back.
"""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from actions.cluster.client import KubeClient
from actions.quota.executor import QuotaExecutor
from actions.quota.review import review_step
from analyzers.quota.analyzer import QuotaAnalyzer
from collectors.kube.queues import Queues
from collectors.kube.quotas import list_quota_rows, read_quota_kinds
from collectors.kube.shapes import CustomObject
from fallow.action_models import Action, Decision
from fallow.kube.api import ApiConnection
from fallow.settings.capacity import QuotaSettings
from fallow.window import Window
from simulator.cluster import nodes
from simulator.cluster.cluster import SimulatedCluster
from simulator.kube.server import KubeServer
from simulator.kube.store import ObjectStore
from tests.analyzers.conftest import Memory
from tests.servers.quota_webhooks import QUOTA_WEBHOOKS

GPU = "nvidia.com/gpu"
START = datetime(2026, 10, 5, tzinfo=UTC)
HOUR_S = 3600.0
GPUS, DAYS = 16, 15
ELASTIC = "ElasticQuota.scheduling.x-k8s.io"
TEAMS = {"team-a": 12, "team-b": 4}


class FleetScenario:
    """Two teams on two nodes: a is entitled to 12 GPUs and needs 2, b to 4 and needs 8."""

    def __init__(self, kind: str) -> None:
        self.kind, self.now_s, self.jobs = kind, START.timestamp(), 0
        self.asks = {"team-a": 2, "team-b": 8}
        self.store = ObjectStore(lambda: self.now_s)
        self.store.webhooks = QUOTA_WEBHOOKS
        self.cluster = SimulatedCluster(self.store, nodes.build_nodes({"h100": 2}), seed=7)
        self.views = Memory()
        for team, gpus in TEAMS.items():
            self.store.create("Namespace", {"metadata": {"name": team}})
            self._quota(team, gpus)
        self.views.rows("node", [self._node()])

    def _node(self) -> dict[str, Any]:
        return {
            "cluster": "lab", "node": "n0", "gpu_count": GPUS, "gpu_resource": GPU,
            "gpu_model": "H100", "cpu_milli": 192_000, "memory_bytes": 2**41,
            "first_seen": START, "last_seen": START + timedelta(days=60),
        }  # fmt: skip

    def _quota(self, team: str, gpus: int) -> None:
        if self.kind == "ElasticQuota":
            spec: Any = {"min": {GPU: str(gpus)}, "max": {GPU: str(gpus)}}
            meta = {"name": "quota", "namespace": team}
            self.store.create(ELASTIC, {"metadata": meta, "spec": spec})
            return
        amounts = {GPU: str(gpus), "cpu": "1000", "memory": "10Ti"}
        limits = {"borrowingLimit": "0", "lendingLimit": str(gpus)}
        resources = [{"name": k, "nominalQuota": v} for k, v in amounts.items()]
        resources[0] |= limits
        group = {
            "coveredResources": [*amounts],
            "flavors": [{"name": "h100", "resources": resources}],
        }
        spec = {"resourceGroups": [group], "cohortName": "all"}
        self.store.create("ClusterQueue", {"metadata": {"name": team}, "spec": spec})
        local = {"metadata": {"name": "q", "namespace": team}, "spec": {"clusterQueue": team}}
        self.store.create("LocalQueue", local)

    def _ask(self, team: str) -> None:
        """Bring one job of one GPU."""
        self.jobs += 1
        limits = {GPU: "1", "cpu": "4", "memory": "16Gi"}
        container = {"name": "main", "image": "work:1", "resources": {"limits": limits}}
        spec = {"containers": [container], "restartPolicy": "Never"}
        meta: dict[str, Any] = {"name": f"j{self.jobs}", "namespace": team}
        if self.kind == "ClusterQueue":
            meta["labels"] = {"kueue.x-k8s.io/queue-name": "q"}
        body = {"parallelism": 1, "completions": 1, "template": {"spec": spec}}
        self.store.create("Job", {"metadata": meta, "spec": body})

    def hour(self) -> None:
        """Let an hour pass: who has less than it wants brings more, and an inspector looks."""
        for team, wanted in self.asks.items():
            open_jobs = [
                j
                for j in self.store.list("Job", team)
                if not (j.get("status") or {}).get("succeeded")
            ]
            for _ in range(wanted - len(open_jobs)):
                self._ask(team)
        end_s = self.now_s + HOUR_S
        self.cluster.settle(self.now_s)
        while self.cluster.next_event() <= end_s:
            self.now_s = max(self.cluster.next_event(), self.now_s)
            self.cluster.settle(self.now_s)
        self.now_s = end_s
        self.cluster.settle(end_s)
        self._look()
        if int(end_s / HOUR_S) % 6 == 3:
            self._finish()

    def _finish(self) -> None:
        for pod in self.store.list("Pod"):
            if pod["status"].get("phase") == "Running":
                self.cluster.finish(pod["metadata"]["uid"], self.now_s)

    @property
    def now(self) -> datetime:
        return datetime.fromtimestamp(self.now_s, UTC)

    def held(self, team: str) -> int:
        """Count the GPUs, one per pod, that a team has now."""
        pods = self.store.list("Pod", team)
        return sum(p["status"].get("phase") == "Running" for p in pods)

    def _look(self) -> None:
        """Write what a collector would."""
        queues = Queues()
        queues.add_workloads(_custom(w) for w in self.store.list("Workload"))
        at = self.now - timedelta(minutes=30)
        rows: list[dict[str, Any]] = []
        for kind in read_quota_kinds():
            if kind.kind in {self.kind, "LocalQueue"}:
                name = ELASTIC if kind.kind == "ElasticQuota" else kind.kind
                for item in self.store.list(name):
                    rows += list_quota_rows(
                        kind, _custom(item), cluster="lab", now=at, queues=queues
                    )
        self.views.rows("quota", rows)
        held = sum(map(self.held, TEAMS))
        hour = {
            "cluster": "lab", "bucket": self.now - timedelta(hours=1), "device": "free",
            "state": "free", "namespace": "", "workload_kind": "", "workload": "",
            "model": "H100", "seconds": 3600.0, "gpu_seconds": (GPUS - held) * 3600.0,
            "priced": False,
        }  # fmt: skip
        self.views.rows("ledger", [hour])

    def seen_pods(self) -> None:
        """Write the pods as they are known now, anew."""
        self.views.engine.execute('DELETE FROM "pod"')

        def moment(seconds: float | None) -> datetime | None:
            return None if seconds is None else datetime.fromtimestamp(seconds, UTC)

        rows = [
            {
                "cluster": "lab", "uid": w.uid, "pod": "p", "namespace": w.owner.split("/")[1],
                "gpu_request": w.gpus, "gpu_resource": GPU, "created_at": moment(w.queued_s),
                "first_seen": moment(w.queued_s), "scheduled_at": moment(w.bound_s),
                "finished_at": moment(w.ended_s), "last_seen": moment(w.ended_s) or self.now,
                "node": "n0" if w.bound_s else None,
            }
            for w in self.cluster.waits
        ]  # fmt: skip
        self.views.rows("pod", rows)


def _custom(item: Any) -> CustomObject:
    return msgspec.convert(item, CustomObject)


@pytest.fixture(params=["ClusterQueue", "ElasticQuota"])
def scenario(request: pytest.FixtureRequest) -> Iterator[FleetScenario]:
    made = FleetScenario(request.param)
    yield made
    made.views.engine.close()


@pytest.fixture
def door(scenario: FleetScenario) -> Iterator[KubeClient]:
    from kubernetes import client

    with KubeServer(scenario.store) as server:
        configuration = client.Configuration()
        configuration.host = server.url
        yield KubeClient(ApiConnection(client.ApiClient(configuration)), "lab")


def decided(scenario: FleetScenario) -> Decision:
    """Return what a policy would decide on the analyzer's finding."""
    window = Window(scenario.now - timedelta(days=1), scenario.now)
    settings = QuotaSettings(least_history_days=7)
    scenario.seen_pods()
    found = {f.kind: f for f in QuotaAnalyzer(settings).find(scenario.views, window)}
    advice = found["stranded_quota"].recommendations[0]
    assert advice.verb == "rebalance-quota"
    subject = ("lab", "Quota", "", found["stranded_quota"].subject.workload)
    return Decision(
        "d", "rebalance-quota", "f", subject, advice.verb, "act", "allow", (), scenario.now,
        parameters=advice.parameters,
    )  # fmt: skip


def spec(scenario: FleetScenario) -> list[Any]:
    name = ELASTIC if scenario.kind == "ElasticQuota" else "ClusterQueue"
    return [item["spec"] for item in scenario.store.list(name)]


def act(scenario: FleetScenario, door: KubeClient) -> Action:
    """Make the rebalance, as the loop would."""
    decision = decided(scenario)
    intent = QuotaExecutor().writes(decision, door)
    action = Action("x", decision, intent, scenario.now, "actor")
    for change in intent.changes:
        assert door.send(change, dry_run=True).ok
        assert door.send(change, dry_run=False).ok
    return action


def waited(scenario: FleetScenario, since: datetime) -> float:
    """Return the GPU-hours waited for since a moment, by the cluster's own count."""
    first, now = since.timestamp(), scenario.now_s
    return sum(
        w.gpus * max(0.0, min(w.bound_s or w.ended_s or now, now) - max(w.queued_s, first)) / 3600
        for w in scenario.cluster.waits
    )


def test_waiting_falls_after_the_rebalance_and_the_step_stands(
    scenario: FleetScenario, door: KubeClient
) -> None:
    for _ in range(DAYS * 24):
        scenario.hour()
    before = waited(scenario, scenario.now - timedelta(days=2)) / 2
    assert scenario.held("team-b") == 4
    action = act(scenario, door)
    assert QuotaExecutor().review(action, scenario.views, scenario.now) is None, "too early to say"
    for _ in range(48):
        scenario.hour()
    scenario.seen_pods()
    assert scenario.held("team-b") == 7, "12 gives a quarter, 3; lending and limits follow"
    assert waited(scenario, action.at) / 2 < before / 2
    review = review_step(action, scenario.views, scenario.now)
    assert review.worse is False
    assert review.waited_after is not None
    assert review.waited_before is not None
    assert review.waited_after < review.waited_before / 2
    assert review.good_gpu_hours > 100
    assert review.harm_gpu_hours == 0


def test_a_step_that_keeps_the_giver_waiting_is_taken_back(
    scenario: FleetScenario, door: KubeClient
) -> None:
    for _ in range(DAYS * 24):
        scenario.hour()
    before = spec(scenario)
    action = act(scenario, door)
    assert spec(scenario) != before
    scenario.asks["team-a"] = 14  # the quiet fortnight is over
    for _ in range(48):
        scenario.hour()
    scenario.seen_pods()
    reasons = QuotaExecutor().review(action, scenario.views, scenario.now)
    assert reasons is not None
    assert [r.gate for r in reasons] == ["worsened"]
    for change in action.intent.undo:
        assert door.send(change, dry_run=False).ok
    assert spec(scenario) == before
    for _ in range(12):
        scenario.hour()
    assert scenario.held("team-a") == 12
