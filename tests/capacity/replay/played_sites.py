"""Sites that the simulator plays: jobs are submitted, the cluster places them, collectors list it.

The rows are those of the collectors' own mappings; the truth about waits is the cluster's own.
"""

import random
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import msgspec

from collectors.kube.devices import Dra
from collectors.kube.nodes import build_node_row
from collectors.kube.owners import TopOwner
from collectors.kube.pods import PodContext, build_pod_row
from collectors.kube.queues import Queues
from collectors.kube.quotas import list_quota_rows, read_quota_kinds
from collectors.kube.shapes import CustomObject, Node, Pod
from fallow.kube.objects import get_uid
from fallow.window import Window
from simulator.cluster import nodes
from simulator.cluster.cluster import SimulatedCluster
from simulator.cluster.objects import is_ready
from simulator.kube.store import ObjectStore
from tests.analyzers.conftest import Memory

START = datetime(2026, 11, 16, tzinfo=UTC)
GPU = "nvidia.com/gpu"
Rows = list[dict[str, Any]]


class PlannedJob(msgspec.Struct, frozen=True):
    """A job that its owner submits."""

    name: str
    team: str
    at_s: float
    run_s: float
    gpus: int
    pods: int = 1


class SiteSettings(msgspec.Struct, frozen=True):
    """Nodes by pool, priorities by team, and Kueue's nominal quotas by team; none = no Kueue."""

    pools: dict[str, int]
    priorities: dict[str, int] = {}
    quotas: dict[str, int] = {}


class PlayedSite:
    """A cluster with planned jobs, played to the end of its window."""

    def __init__(
        self,
        settings: SiteSettings,
        jobs: Sequence[PlannedJob],
        *,
        hours: float = 96,
        seed: int = 0,
    ) -> None:
        self._now_s = START.timestamp()
        self._end_s = self._now_s + hours * 3600
        self.window = Window(START, START + timedelta(hours=hours))
        self._store = ObjectStore(lambda: self._now_s, seed)
        self._cluster = SimulatedCluster(self._store, nodes.build_nodes(settings.pools), seed=seed)
        self._jobs = {job.name: job for job in jobs}
        self._priorities, self._quotas = settings.priorities, settings.quotas
        self._pods: dict[str, tuple[dict[str, Any], float]] = {}
        """By uid: a pod as it was last listed, and when."""
        self._ends: dict[str, float] = {}
        self._version = 0
        for team in sorted({job.team for job in jobs}):
            self._create("Namespace", team, "")
        for team, gpus in self._quotas.items():
            self._create_queue(team, gpus)
        self._play()

    def list_waits(self) -> dict[str, float]:
        """Return how long each job waited for its first placement, in seconds."""
        bound: dict[str, float] = {}
        for wait in self._cluster.waits:
            if wait.bound_s is not None:
                bound.setdefault(wait.owner.rpartition("/")[2], wait.bound_s - START.timestamp())
        return {name: at_s - self._jobs[name].at_s for name, at_s in bound.items()}

    def fill(self, views: Memory, *, workloads: bool = True) -> None:
        """Put what collectors list into tables; with or without the Kueue workloads."""
        queues = Queues()
        if workloads:
            queues.add_workloads(_convert(w, CustomObject) for w in self._store.list("Workload"))
        views.rows("pod", [self._build_row(*listed, queues) for listed in self._pods.values()])
        listed_at = _to_time(self._end_s)
        for node in self._store.list("Node"):
            row = build_node_row(_convert(node, Node), cluster="c", now=listed_at, dra=Dra())
            row.pop("part", None)  # of its instances: no column
            views.rows("node", [_drop_zones({**row, "first_seen": START, "last_seen": listed_at})])
        for kind in read_quota_kinds():
            if kind.kind not in {"ClusterQueue", "LocalQueue"} or not self._quotas:
                continue
            for item in self._store.list(kind.kind):
                rows = list_quota_rows(
                    kind, _convert(item, CustomObject), cluster="c",
                    now=listed_at - timedelta(minutes=1), queues=queues,
                )  # fmt: skip
                views.rows("quota", map(_drop_zones, rows))

    def _build_row(self, pod: dict[str, Any], seen_s: float, queues: Queues) -> dict[str, Any]:
        owner = pod["metadata"]["ownerReferences"][0]
        context = PodContext(
            "c",
            partial(_to_time, seen_s),
            lambda _: TopOwner(owner["kind"], owner["name"], owner["uid"]),
            team_labels=("team",),
            queues=queues,
        )
        return _drop_zones(build_pod_row(_convert(pod, Pod), context))

    def _play(self) -> None:
        coming = sorted(self._jobs.values(), key=lambda job: (job.at_s, job.name))
        start_s = self._now_s
        self._settle()
        while self._now_s < self._end_s:
            times = [self._cluster.next_event(), *self._ends.values(), self._end_s]
            if coming:
                times.append(start_s + coming[0].at_s)
            self._now_s = max(min(times), self._now_s)
            while coming and start_s + coming[0].at_s <= self._now_s:
                self._submit(coming.pop(0))
            for uid in [uid for uid, end_s in self._ends.items() if end_s <= self._now_s]:
                del self._ends[uid]
                self._cluster.finish(uid, self._now_s)
            self._settle()
        for pod in self._store.list("Pod"):
            self._pods[get_uid(pod)] = pod, self._end_s

    def _settle(self) -> None:
        self._cluster.settle(self._now_s)
        self._version, changes = self._store.changes(self._version)
        for change in changes:
            if change.kind != "Pod":
                continue
            pod, uid = change.object, get_uid(change.object)
            known = uid in self._pods and uid in self._ends
            self._pods[uid] = pod, self._now_s
            if change.type == "DELETED":
                self._ends.pop(uid, None)
            elif is_ready(pod) and not known and pod["status"]["phase"] == "Running":
                job = self._jobs[pod["metadata"]["ownerReferences"][0]["name"]]
                self._ends.setdefault(uid, self._now_s + job.run_s)

    def _submit(self, job: PlannedJob) -> None:
        labels = {"team": job.team}
        amounts = {GPU: str(job.gpus), "cpu": "4", "memory": "16Gi"}
        container = {"name": "main", "image": "work:1", "resources": {"limits": amounts}}
        template = {
            "metadata": {"labels": labels},
            "spec": {
                "containers": [container],
                "restartPolicy": "Never",
                "priority": self._priorities.get(job.team, 0),
            },
        }
        spec = {"parallelism": job.pods, "completions": job.pods, "template": template}
        if self._quotas:
            spec["suspend"] = True
            labels = {**labels, "kueue.x-k8s.io/queue-name": job.team}
        self._create("Job", job.name, job.team, spec, labels=labels)

    def _create_queue(self, team: str, gpus: int) -> None:
        amounts = {GPU: str(gpus), "cpu": "1000", "memory": "10Ti"}
        resources = [{"name": k, "nominalQuota": v} for k, v in amounts.items()]
        flavors = [{"name": "default", "resources": resources}]
        group = {"coveredResources": [*amounts], "flavors": flavors}
        spec = {"resourceGroups": [group], "cohortName": "all"}
        self._create("ClusterQueue", team, "", spec)
        self._create("LocalQueue", team, team, {"clusterQueue": team})

    def _create(
        self, kind: str, called: str, namespace: str, spec: Any = None, **meta: Any
    ) -> None:
        known = self._store.kind(kind)
        metadata = {"name": called, **({"namespace": namespace} if namespace else {}), **meta}
        body = {"apiVersion": known.api_version, "kind": known.kind, "metadata": metadata}
        if spec is not None:
            body["spec"] = spec
        self._store.create(kind, body, manager="kubectl")


def draw_jobs(
    seed: int, *, gpus: int, load: Mapping[str, float], hours: float = 24
) -> list[PlannedJob]:
    """Return jobs of 1 to 4 GPUs and half an hour to six hours; each team's load of the GPUs."""
    rng = random.Random(seed)
    jobs: list[PlannedJob] = []
    for team, part in load.items():
        demand_h = part * gpus * hours
        while demand_h > 0:
            job = PlannedJob(
                f"{team}-{len(jobs)}",
                team,
                float(int(rng.uniform(0, hours * 3600))),
                float(int(rng.lognormvariate(8.5, 0.7))),
                rng.choice((1, 1, 2, 4)),
            )
            jobs.append(job)
            demand_h -= job.run_s / 3600 * job.gpus
    return jobs


def _convert(body: dict[str, Any], shape: type[Any]) -> Any:
    return msgspec.json.decode(msgspec.json.encode(body), type=shape)


def _to_time(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def _drop_zones(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row whose times are naive UTC, as the tables have them."""
    return {
        key: value.astimezone(UTC).replace(tzinfo=None) if isinstance(value, datetime) else value
        for key, value in row.items()
    }
