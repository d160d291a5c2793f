"""One or several objects of each kind that a reclaim executor stops, as people write them."""

from datetime import UTC, datetime
from typing import Any

import msgspec

from fallow.action_models import Decision
from tests.actions.places import CLUSTER, Object

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
GPU = {"limits": {"nvidia.com/gpu": "2"}}
POD: Object = {"containers": [{"name": "main", "image": "busybox", "resources": GPU}]}


class Example(msgspec.Struct, frozen=True):
    """An object, and what its controller says of it."""

    kind: str
    """As rows name it."""
    spec: Any
    key: str = ""
    """As the store names it, where that differs."""
    status: Any = None
    meta: dict[str, Any] = {}
    verb: str = "suspend"

    @property
    def stored(self) -> str:
        return self.key or self.kind

    def body(self, name: str) -> Object:
        return {"metadata": {"name": name, **self.meta}, "spec": self.spec}


def replicated(replicas: int | None = 3) -> Object:
    labels = {"app": "x"}
    spec: Object = {
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": POD},
    }
    return spec if replicas is None else {"replicas": replicas, **spec}


def job() -> Object:
    return {"template": {"spec": {**POD, "restartPolicy": "Never"}}}


def trained(specs: str, **more: Any) -> Object:
    return {specs: {"Worker": {"replicas": 2, "template": {"spec": POD}}}, **more}


OPTIONS = {"imageConfig": "jupyter", "podConfig": "one_gpu"}
WORKSPACE: Object = {"kind": "jupyter", "podTemplate": {"options": OPTIONS, "volumes": {}}}
GROUPS_OF_TWO: Object = {"leaderWorkerTemplate": {"size": 2, "workerTemplate": {"spec": POD}}}
RAY: Object = {"headGroupSpec": {"rayStartParams": {}, "template": {"spec": POD}}}
CRON_WORKFLOW: Object = {"schedules": ["0 * * * *"], "workflowSpec": {}}
SPARK: Object = {
    "type": "Scala", "sparkVersion": "4.0.0", "mainApplicationFile": "local:///x.jar",
    "driver": {}, "executor": {},
}  # fmt: skip
RUNNING = {"state": {"phase": "Running"}}
SCALE, STOP = "scale to zero", "stop"
EXAMPLES = (
    Example("Deployment", replicated(), verb=SCALE),
    Example("Deployment", replicated(None), verb=SCALE),
    Example("Rollout", replicated(), verb=SCALE),
    Example("Rollout", replicated(None), verb=SCALE),
    Example("StatefulSet", {"serviceName": "x", **replicated()}, verb=SCALE),
    Example("LeaderWorkerSet", {"replicas": 2, **GROUPS_OF_TWO}, verb=SCALE),
    Example("LeaderWorkerSet", GROUPS_OF_TWO, verb=SCALE),
    Example("Notebook", {"template": {"spec": POD}}, verb=STOP),
    Example("Notebook", {"template": {"spec": POD}}, meta={"annotations": {"a": "b"}}, verb=STOP),
    Example("Workspace", WORKSPACE, verb=STOP),
    Example("Workspace", {**WORKSPACE, "paused": False}, verb=STOP),
    Example("DevWorkspace", {"started": True}, verb=STOP),
    Example("DevWorkspace", {"started": True, "template": {}}, verb=STOP),
    Example("Job", job()),
    Example("CronJob", {"schedule": "0 * * * *", "jobTemplate": {"spec": job()}}),
    Example("PyTorchJob", trained("pytorchReplicaSpecs")),
    Example("PyTorchJob", trained("pytorchReplicaSpecs", runPolicy={"backoffLimit": 3})),
    Example("PyTorchJob", trained("pytorchReplicaSpecs", runPolicy={"suspend": False})),
    Example("TFJob", trained("tfReplicaSpecs")),
    Example("MPIJob", trained("mpiReplicaSpecs")),
    Example("XGBoostJob", trained("xgbReplicaSpecs")),
    Example("PaddleJob", trained("paddleReplicaSpecs")),
    Example("JAXJob", trained("jaxReplicaSpecs")),
    Example("TrainJob", {"runtimeRef": {"name": "torch"}}),
    Example("JobSet", {"replicatedJobs": []}),
    Example("RayJob", {"shutdownAfterJobFinishes": True, "rayClusterSpec": RAY}),
    Example("RayCluster", RAY),
    Example("RayService", {"rayClusterConfig": RAY}),
    Example("InferenceService", {"predictor": {"minReplicas": 1}}, verb=STOP),
    Example("LLMInferenceService", {"replicas": 1}, verb=STOP),
    Example("InferenceGraph", {"nodes": {}}, verb=STOP),
    Example(
        "InferenceService",
        {"predictor": {}},
        meta={"annotations": {"serving.kserve.io/stop": "false"}},
        verb=STOP,
    ),
    Example("CronWorkflow", CRON_WORKFLOW),
    Example("VolcanoJob", {"tasks": []}, key="Job.batch.volcano.sh", status=RUNNING, verb="abort"),
    Example("AppWrapper", {"components": []}),
    Example("SparkApplication", SPARK),
    Example("Pod", POD, meta={"annotations": {"fallow.dev/evict": "true"}}, verb="evict"),
)


def decided(
    kind: str, namespace: str, name: str, verb: str, *, uid: str | None = None, **more: Any
) -> Decision:
    """Return an allowed decision to act; a policy that evicts asks to restore the pod."""
    more.setdefault("parameters", {"restore": True} if kind == "Pod" else {})
    return Decision(
        id="d" * 12,
        policy="p",
        finding="f",
        subject=(CLUSTER, kind, namespace, name),
        verb=verb,
        step="act",
        ruling="allow",
        reasons=(),
        at=NOW,
        uid=uid,
        **more,
    )
