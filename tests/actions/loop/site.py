"""A living cluster, its API door, evidence as the test says it, and an actor over them."""

import copy
import json
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec

from actions.cluster.client import KubeClient
from actions.executors import choose_executor
from actions.journal import ActionState as Told_
from actions.journal import Journal, JournalState
from actions.loop.actor import Actor
from actions.loop.freeze import Freeze
from actions.loop.lease import Lease
from actions.loop.protocols import Notice, NoticeProof
from actions.loop.recheck import Recheck
from actions.plan import ActionPlan
from actions.policy.budgets import BudgetUsage
from actions.policy.model import Policy, Stage
from fallow.action_models import CaseHistory, Decision, Facts, Reason, Step, compute_decision_id
from fallow.kube.api import ApiConnection, BackOff
from fallow.models import Finding, Recommendation, Subject
from fallow.settings.actions import ActionsSettings
from fallow.window import Window
from simulator.cluster import nodes
from simulator.cluster.cluster import SimulatedCluster
from simulator.kube.server import KubeServer
from simulator.kube.store import ObjectStore
from tests.actions.cases import WANTED

START = datetime(2026, 11, 20, 12, tzinfo=UTC)
SPACE = "team-a"
Object = dict[str, Any]
POLICY = Policy(
    name="idle",
    mode="enforce",
    stages=(Stage("notify"), Stage("grace", wait=timedelta(hours=1)), Stage("act", do=("scale",))),
)
SETTINGS = ActionsSettings(enabled=True)
VERBS = {
    "Deployment": "scale to zero",
    "Job": "suspend",
    "CronJob": "suspend",
    "Pod": "evict",
    "StatefulSet": "scale to zero",
    "Notebook": "stop",
    "JobSet": "restart",
}
GROUPS = {
    "Deployment": "apps",
    "Job": "batch",
    "CronJob": "batch",
    "Pod": "",
    "StatefulSet": "apps",
    "Notebook": "kubeflow.org",
    "JobSet": "jobset.x-k8s.io",
}


def api(url: str, *, timeout_s: float = 5.0) -> ApiConnection:
    """Return a connection whose pauses are not slept."""
    from kubernetes import client

    config = client.Configuration(host=url)
    config.retries = False
    return ApiConnection(
        client.ApiClient(config), timeout_s=timeout_s, pause=BackOff(lambda _s: None, lambda: 1.0)
    )


class Told:
    """A notifier that remembers; it fails or waits as the test says."""

    def __init__(self) -> None:
        self.notices: list[Notice] = []
        self.failing = False

    def tell(self, notices: Sequence[Notice], now: datetime) -> list[NoticeProof]:
        del now
        if self.failing:
            return [NoticeProof(n, failed=("hook: connection refused",)) for n in notices]
        self.notices += notices
        return [NoticeProof(n, delivered=("hook",)) for n in notices]

    def operators(self) -> list[str]:
        return [n.text for n in self.notices if n.operators]


class Evidence:
    """Idle workloads of the cluster, as its own store shows them."""

    def __init__(
        self, url: str, clock: Callable[[], datetime], node_verb: str = "cut-again"
    ) -> None:
        self.door, self.clock = KubeClient(api(url), "c"), clock
        self.idle: list[tuple[str, str]] = []
        self.busy_on_second_look: set[str] = set()
        self.awake_at_last: set[str] = set()
        self.stale_at_last: tuple[str, ...] = ()
        self.age = timedelta(seconds=20)
        self.changes: dict[str, Any] = {}
        self.why: str | None = None
        self.node_verb = node_verb

    def read_sources(self, now: datetime) -> None:
        """Say what is so when asked."""

    def cases(self, now: datetime) -> list[Facts]:
        return [self._facts(kind, name, now) for kind, name in self.idle]

    def again(self, facts: Facts, now: datetime) -> Facts | None:
        subject = facts.finding.subject
        if subject.workload in self.busy_on_second_look:
            return None
        return self._facts(subject.workload_kind, subject.workload, now)

    def recheck(self, facts: Facts, now: datetime) -> Recheck:
        del now
        if facts.finding.subject.workload in self.awake_at_last:
            return Recheck(active=("GPU-1 was seen at work (90%)",))
        return Recheck(stale=self.stale_at_last)

    def fleet(self, now: datetime) -> BudgetUsage:
        del now
        return BudgetUsage(fleet_gpus=32.0, fleet_workloads=10, fleet_owners=4)

    def incident(self, now: datetime) -> str | None:
        del now
        return self.why

    def _facts(self, kind: str, name: str, now: datetime) -> Facts:
        path = self.door.collection(kind, GROUPS[kind], SPACE)
        obj = self.door.get(f"{path}/{name}") or {}
        meta = obj.get("metadata", {})
        finding = Finding(
            id=f"f-{name}",
            analyzer="idle",
            kind="idle",
            subject=Subject("c", SPACE, kind, name, team="team-a"),
            window=Window(START - timedelta(hours=9), now),
            verdict="idle",
            evidence="confirmed",
            confidence=0.9,
            gpu_hours=18.0,
            usd=Decimal("54.00"),
            details={"actionable": True, "wanted": WANTED},
        )
        advice = Recommendation(
            verb=self.node_verb if kind == "Node" else VERBS[kind],
            target=f"{kind}/{SPACE}/{name}",
            why="idle",
            reversible=True,
            gpu_hours_per_day=48.0,
            usd_per_day=Decimal("144.00"),
        )
        made = Facts(
            finding=finding,
            recommendation=advice,
            at=now,
            gpus=float((obj.get("spec") or {}).get("replicas", 1)),
            uid=meta.get("uid"),
            generation=meta.get("generation"),
            owner="team-a",
            usd_per_day=advice.usd_per_day,
            seen_until=now - self.age,
        )
        return msgspec.structs.replace(made, **self.changes)


def decide(policy: Policy, facts: Facts, spent: BudgetUsage, now: datetime) -> Decision:
    """Decide as simply as the loop's order needs: seen, told, grace over, nothing under way."""
    history, reasons = facts.history, []
    step: Step = "act"
    if history.first_seen is None:
        step, reasons = "notify", [Reason("first-sight", "first sight never acts")]
    elif history.notified_at is None:
        step = "notify"
    elif now - history.notified_at < timedelta(hours=1):
        step, reasons = "grace", [Reason("grace", "its owner has time still")]
    elif (stage := policy.stage("snapshot")) and stage.required and history.snapshot_at is None:
        step = "snapshot"
    if history.open_action:
        reasons.append(Reason("open", history.open_action))
    if history.contested_until and history.contested_until > now:
        reasons.append(Reason("reverted", "left alone"))
    if history.kept_until and history.kept_until > now:
        reasons.append(Reason("kept", "its owner keeps it"))
    if step == "act" and policy.approvals.when == "always" and not history.approved_by:
        reasons.append(Reason("approval", "nobody approved it"))
    if policy.name in spent.demoted:
        reasons.append(Reason("demoted", "it only notifies"))
    subject = facts.finding.subject
    return Decision(
        id=compute_decision_id(policy.name, facts.finding.id, step),
        policy=policy.name,
        finding=facts.finding.id,
        subject=(subject.cluster, subject.workload_kind, subject.namespace, subject.workload),
        verb=facts.recommendation.verb,
        step=step,
        ruling="hold" if reasons else "allow",
        reasons=tuple(reasons),
        at=now,
        gpus=facts.gpus,
        owner=facts.owner,
        usd_per_day=facts.usd_per_day,
        uid=facts.uid,
        generation=facts.generation,
        seen_until=facts.seen_until,
        parameters={
            "capabilities": ["scale", "suspend", "evict", "restart", "restart elsewhere"],
            "allowed_namespaces": ["*"],
            "restore": True,
            **facts.recommendation.parameters,
        },
    )


def plan(
    policies: Sequence[Policy],
    facts: Sequence[Facts],
    spent: BudgetUsage,
    now: datetime,
    histories: Mapping[tuple[str, str], CaseHistory],
) -> ActionPlan:
    made = [
        decide(
            policies[0],
            msgspec.structs.replace(f, history=histories[policies[0].name, f.finding.id]),
            spent,
            now,
        )
        for f in facts
    ]
    return ActionPlan(tuple(made), ())


class Site:
    """Everything a test of the loop needs."""

    def __init__(self, folder: Path, start: datetime = START) -> None:
        self.folder = folder
        self.now = start
        self.store = ObjectStore(self._seconds, 7)
        self.cluster = SimulatedCluster(
            self.store, nodes.build_nodes({"h100": 1, "a100": 1}), seed=7
        )
        self.server = KubeServer(self.store)
        # Whatever is written next to an object meets the version of its controller, not ours.
        self.server.controllers.enable("next write")
        self.told = Told()
        self.settings = SETTINGS
        self.policy = POLICY
        self._made: list[Journal] = []
        for space in (SPACE, "fallow"):
            self.make("Namespace", space, namespace="")

    def _seconds(self) -> float:
        return self.now.timestamp()

    def __enter__(self) -> Self:
        self.server.__enter__()
        self.evidence = Evidence(self.server.url, lambda: self.now)
        self.settle()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        for journal in self._made:
            journal.close()
        self.server.close()

    # the cluster

    def settle(self) -> None:
        self.server.controllers.rest()
        self.cluster.settle(self.now.timestamp())

    def pass_time(self, **length: float) -> None:
        """Let the cluster live for a while."""
        end = self.now + timedelta(**length)
        self.settle()
        while self.cluster.next_event() <= end.timestamp():
            at = datetime.fromtimestamp(self.cluster.next_event(), UTC)
            self.now = max(at, self.now)
            self.settle()
        self.now = end
        self.settle()

    def make(self, kind: str, name: str, spec: Any = None, *, namespace: str = SPACE) -> Object:
        known = self.store.kind(kind)
        meta = {"name": name, **({"namespace": namespace} if namespace else {})}
        body: Object = {"apiVersion": known.api_version, "kind": known.kind, "metadata": meta}
        if spec is not None:
            body["spec"] = spec
        return self.store.create(kind, body, manager="kubectl-create")

    def deployment(self, name: str = "web", replicas: int = 2) -> Object:
        """Make a Deployment with a GPU per replica, and name it idle."""
        labels = {"app": name}
        template = {"metadata": {"labels": labels}, "spec": pod_spec()}
        spec = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template}
        self.make("Deployment", name, spec)
        self.evidence.idle.append(("Deployment", name))
        self.pass_time(minutes=3)
        return self.get("Deployment", name)

    def cron_job(self, name: str = "night") -> Object:
        """Make a CronJob with a Job of it that runs, and name it idle."""
        pods = {"spec": {"restartPolicy": "Never", **pod_spec()}}
        job = {"template": pods, "parallelism": 1, "completions": 1}
        spec = {"schedule": "0 3 * * *", "suspend": False, "jobTemplate": {"spec": job}}
        made = self.make("CronJob", name, spec)
        run = self.make("Job", f"{name}-1", {**copy.deepcopy(job), "suspend": False})
        owner = {
            "apiVersion": "batch/v1",
            "kind": "CronJob",
            "name": name,
            "uid": made["metadata"]["uid"],
            "controller": True,
        }
        self.store.patch(
            "Job", run["metadata"]["name"], SPACE, {"metadata": {"ownerReferences": [owner]}}
        )
        self.evidence.idle.append(("CronJob", name))
        self.pass_time(minutes=3)
        return self.get("CronJob", name)

    def bare_pod(self, name: str = "alone") -> Object:
        """Make a pod without an owner that opted in to eviction, and name it idle."""
        made = self.make("Pod", name, pod_spec())
        said = {"metadata": {"annotations": {"fallow.dev/evict": "true"}, "labels": {"app": name}}}
        self.store.patch("Pod", name, SPACE, said, manager="kubectl-annotate")
        self.evidence.idle.append(("Pod", name))
        self.pass_time(minutes=3)
        return made

    def job(self, name: str = "train") -> Object:
        """Make a Job of one rank that runs, and name it idle."""
        template = {"spec": {"restartPolicy": "Never", **pod_spec()}}
        self.make("Job", name, {"parallelism": 1, "completions": 1, "template": template})
        self.evidence.idle.append(("Job", name))
        self.pass_time(minutes=3)
        return self.get("Job", name)

    def job_set(self, name: str = "train") -> Object:
        """Make a JobSet of one rank that runs, and name it as the case."""
        pods = {"spec": {"restartPolicy": "Never", **pod_spec()}}
        job = {"template": pods, "parallelism": 1, "completions": 1}
        group = {"name": "rank", "replicas": 1, "template": {"spec": job}}
        self.make("JobSet", name, {"suspend": False, "replicatedJobs": [group]})
        self.evidence.idle.append(("JobSet", name))
        self.pass_time(minutes=3)
        return self.get("JobSet", name)

    def subject(self, kind: str) -> dict[tuple[str, str], Object]:
        """Make an idle workload and return, bare, the objects that acting on it touches."""
        if kind == "Deployment":
            self.deployment()
            keys = [("Deployment", "web")]
        else:
            self.cron_job()
            keys = [("CronJob", "night"), ("Job", "night-1")]
        return {key: bare(self.get(*key)) for key in keys}

    def replicas_or_suspended(self) -> bool:
        """Tell whether every idle workload is stopped."""
        objects = [self.get(kind, name) for kind, name in self.evidence.idle]
        return all(
            o["spec"].get("suspend") is True or o["spec"].get("replicas", 0) == 0 for o in objects
        )

    def get(self, kind: str, name: str, namespace: str = SPACE) -> Object:
        found = self.store.get(kind, name, namespace)
        assert found is not None
        return found

    def patch(self, kind: str, name: str, body: Any, *, manager: str = "kubectl-edit") -> Object:
        made = self.store.patch(kind, name, SPACE, body, manager=manager)
        self.settle()
        return made

    def acted(self, actor: Actor) -> Told_:
        """Act on the one case there is; return the action."""
        self.told_and_waited(actor)
        report = actor.turn(dry_run=False)
        (told,) = actor.record.actions.values()
        assert [t.result for t in report.steps] == ["acted"], report.steps
        return told

    def done(self, actor: Actor) -> Told_:
        """Act, and let it be verified."""
        told = self.acted(actor)
        self.pass_time(minutes=3)
        actor.turn(dry_run=False)
        assert told.outcome is not None
        assert told.outcome.result == "done", told.outcome
        return told

    def replicas(self, name: str = "web") -> int:
        return int(self.get("Deployment", name)["spec"].get("replicas") or 0)

    def pods(self) -> list[Object]:
        return [
            p for p in self.store.list("Pod", SPACE) if "deletionTimestamp" not in p["metadata"]
        ]

    def writes(self, *parts: str) -> list[str]:
        """Return the writes that were asked for, no dry runs, without leases and events."""
        return [
            f"{a.method} {a.path}"
            for a in self.server.requests
            if a.method != "GET"
            and "dryRun" not in a.query
            and not any(word in a.path for word in ("/leases", "/events", "accessreviews"))
            and all(part in a.path for part in parts)
        ]

    # the actor

    def journal(self, *, actor: str = "service") -> Journal:
        made = journal_in(self.folder, lambda: self.now, actor)
        self._made.append(made)
        return made

    def door(self, *, timeout_s: float = 5.0) -> KubeClient:
        return KubeClient(api(self.server.url, timeout_s=timeout_s), "c")

    def actor(
        self, *, identity: str = "one", timeout_s: float = 5.0, actor: str = "service", **more: Any
    ) -> Actor:
        given = {
            "policies": [self.policy],
            "evidence": self.evidence,
            "notifier": self.told,
            "settings": self.settings,
        }
        record = JournalState(self.journal(actor=actor))
        door = self.door(timeout_s=timeout_s)
        clock = more.pop("clock", lambda: self.now)
        return actor_of(door, record, self.folder, clock, identity, **{**given, **more})

    def told_and_waited(self, actor: Actor) -> None:
        """See the cases, tell their owners, and let the grace pass."""
        actor.turn(dry_run=False)
        self.pass_time(minutes=1)
        actor.turn(dry_run=False)
        self.pass_time(hours=1, minutes=1)

    def kinds(self) -> list[str]:
        """Return the kinds of the journal's rows, in order."""
        return [entry.kind for entry in self.journal().entries()]


def journal_in(folder: Path, clock: Callable[[], datetime], actor: str = "service") -> Journal:
    return Journal.open(folder / "journal.sqlite", clock, actor=actor)


def freeze_in(folder: Path, record: JournalState, door: KubeClient) -> Freeze:
    file = folder / "FREEZE"
    return Freeze(record, door, file=file, namespace="fallow", configmap="fallow-freeze")


def actor_of(
    door: KubeClient,
    record: JournalState,
    folder: Path,
    clock: Callable[[], datetime],
    identity: str,
    **more: Any,
) -> Actor:
    given: dict[str, Any] = {
        "policies": [POLICY],
        "client": door,
        "record": record,
        "lease": Lease(
            door,
            more.get("settings", SETTINGS).lease,
            identity,
            clock,
            ticks=lambda: clock().timestamp(),
        ),
        "freeze": freeze_in(folder, record, door),
        "choose": choose_executor,
        "clock": clock,
        "settings": SETTINGS,
        "planner": plan,
        "decider": decide,
    }
    return Actor(**{**given, **more})


def pod_spec() -> Object:
    limits = {"nvidia.com/gpu": "1", "cpu": "1", "memory": "1Gi"}
    main = {"name": "main", "image": "work:1", "resources": {"limits": limits}}
    return {"containers": [main], "tolerations": [{"operator": "Exists"}]}


def bare(obj: Object) -> Object:
    """Return an object without what every write changes."""
    out: Object = json.loads(json.dumps(obj))
    for key in ("resourceVersion", "generation", "managedFields"):
        out["metadata"].pop(key, None)
    if not out["metadata"].get("annotations"):
        out["metadata"].pop("annotations", None)
    out.pop("status", None)
    return out


def delete_deployment(site: Site) -> None:
    """Delete the deployment as its owner would."""
    site.store.delete("Deployment", "web", SPACE)
    site.settle()


def freeze_by_file(site: Site) -> None:
    """Freeze by the kill switch that is a file."""
    (site.folder / "FREEZE").write_text("stop")


def report_incident(site: Site) -> None:
    """Let the breaker see an incident."""
    site.evidence.why = "34 % of the devices turned idle within 15m"
