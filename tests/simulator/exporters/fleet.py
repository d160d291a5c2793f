"""A small fleet whose every value is known: an H100 node, a MIG A100 node, a T4 node.

gpu-node-a01   0-3 training, busy · 4 notebook with a context, idle · 5 inference, a little
               6 sweep, busy · 7 free
mig-node-b07   board 0: 3g busy, 2g idle notebook, 1g free, 1g busy · board 1: 1g busy
t4-node-c01    0 free
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import numpy as np

from simulator.exporters.snapshot import WorldSnapshot
from simulator.models import (
    STATES,
    TICK_S,
    Block,
    DeviceAllocation,
    Histogram,
    Holder,
    HostSample,
    SimulatedDevice,
    TrainingMetrics,
)

START = datetime(2026, 11, 20, 6, 0, tzinfo=UTC)
A, B, C = "gpu-node-a01", "mig-node-b07", "t4-node-c01"
BUSY, IDLE, LITTLE, FREE = "busy", "idle", "little", "free"
_PODS = (
    ("team-genai", "llm-pretrain-worker-0", "trainer", "PyTorchJob", "llm-pretrain"),
    ("team-risk", "jupyter-alice-0", "notebook", "StatefulSet", "jupyter-alice"),
    ("prod-fraud", "fraud-scorer-6d8f7c9b5-x2k4q", "triton", "Deployment", "fraud-scorer"),
    ("team-vision", "sweep-17-9hf2c", "main", "Job", "sweep-17"),
    ("serving", "bert-embed-5f7-abcde", "srv", "Deployment", "bert-embed"),
    ("team-risk", "jupyter-bob-0", "notebook", "StatefulSet", "jupyter-bob"),
    ("team-nlp", "eval-9qk2x", "main", "Job", "eval"),
    ("team-nlp", "infer-0", "srv", "StatefulSet", "infer"),
    ("team-risk", "jupyter-carol-0", "notebook", "StatefulSet", "jupyter-carol"),
)
HOLDERS = tuple(
    Holder(f"00000000-0000-0000-0000-{i:012d}", ns, pod, box, kind, top, ns.partition("-")[2])
    for i, (ns, pod, box, kind, top) in enumerate(_PODS)
)
ALICE_GPU, EMPTY_GPU, T4_GPU = 4, 7, 13
TRAIN, ALICE, FRAUD, SWEEP, BERT, BOB, EVAL, INFER, CAROL = range(9)


def _uuid(node: str, index: int) -> str:
    letter = "abc"[(A, B, C).index(node)]
    return f"GPU-{letter * 8}-0000-0000-0000-{index:012d}"


def _mig(gpu: int, profile: str, instance: int) -> SimulatedDevice:
    weight = int(profile[0]) / 7
    return SimulatedDevice(_uuid(B, gpu), B, gpu, "A100-40GB", profile, instance, weight)


DEVICES = (
    *(SimulatedDevice(_uuid(A, i), A, i, "H100") for i in range(8)),
    *(
        _mig(0, profile, gi)
        for profile, gi in (("3g.20gb", 1), ("2g.10gb", 5), ("1g.5gb", 13), ("1g.5gb", 14))
    ),
    _mig(1, "1g.5gb", 7),
    SimulatedDevice(_uuid(C, 0), C, 0, "T4"),
)
PLAN = (
    *[(TRAIN, BUSY)] * 4,
    (ALICE, IDLE),
    (FRAUD, LITTLE),
    (SWEEP, BUSY),
    (-1, FREE),
    (BERT, LITTLE),
    (BOB, IDLE),
    (-1, FREE),
    (EVAL, BUSY),
    (INFER, BUSY),
    (-1, FREE),
)
_LEVEL = {BUSY: 0.97, IDLE: 0.0, LITTLE: 0.25, FREE: 0.0}
_STATE = {BUSY: "productive", IDLE: "idle", LITTLE: "low", FREE: "free"}


def block(
    ticks: int = 4,
    start: datetime = START,
    plan: Sequence[tuple[int, str]] = PLAN,
    **arrays: Any,
) -> Block:
    """Return the fleet over some ticks; `arrays` replace whole columns."""
    shape = (len(DEVICES), ticks)
    at = start.timestamp() + TICK_S * np.arange(ticks, dtype=np.float64)
    level = np.array([_LEVEL[mode] for _, mode in plan])[:, None]
    # A little of every tick and device, so that values mixed up are seen.
    stir = 0.001 * (np.arange(shape[0])[:, None] + 0.1 * (np.arange(ticks) % 7)[None, :])
    busy = np.where(level > 0, level - stir, 0.0)
    context = np.array([mode != FREE for _, mode in plan])[:, None]
    wide = np.array([{"H100": 610.0, "T4": 50.0}.get(d.gpu_model, 250.0) for d in DEVICES])[:, None]
    bare = np.array([{"H100": 70.0, "T4": 11.0}.get(d.gpu_model, 50.0) for d in DEVICES])[:, None]
    power = np.where(busy > 0, bare + 64 + wide * busy, np.where(context, bare + 47.6, bare))
    power = _boards(power + np.zeros(shape))
    energy = 8e11 + power[:, :1] * 1000 * (at[None, :] - at[0]) + np.zeros(shape)
    used = np.where(busy > 0, 4000.0 + 1000 * busy, np.where(context, 2048.0, 4.0))
    columns = {
        "holder": np.repeat([[h] for h, _ in plan], ticks, axis=1).astype(np.int16),
        "state": np.repeat([[STATES.index(_STATE[m])] for _, m in plan], ticks, 1).astype(np.int16),
        "stop_harms": np.zeros(shape, np.bool_),
        "sm_active": busy * 0.8,
        "gr_engine_active": busy,
        "tensor_active": busy * 0.4,
        "fp32_active": busy * 0.1,
        "throttle_mask": (busy == 0).astype(np.int16),
        "dram_active": busy * 0.45,
        "gpu_util_pct": busy * 100,
        "mem_used_mib": used + np.zeros(shape),
        "power_w": power,
        "energy_mj": energy,
        "temp_c": 29 + power / 20,
        "sm_clock_mhz": np.where(busy > 0, 1755.0, 345.0),
        "pcie_rx_bytes": busy * 4.1e8,
        "pcie_tx_bytes": busy * 1.2e8,
        "nvlink_bytes": busy * 2.3e10,
        "xid": np.zeros(shape, np.int16),
        **arrays,
    }
    for name, values in columns.items():
        if name not in {"holder", "state", "stop_harms", "xid", "throttle_mask", "energy_mj"}:
            columns[name] = np.asarray(values, np.float32)
    return Block(ticks=at, devices=DEVICES, holders=HOLDERS, **columns)


def _boards(power: Any) -> Any:
    """Let the instances of a board show the board's power."""
    for device in DEVICES:
        mine = [i for i, d in enumerate(DEVICES) if d.uuid == device.uuid]
        power[mine] = power[mine].max(axis=0)
    return power


def hosts(at: datetime = START) -> list[HostSample]:
    """Return what the hosts say of every pod."""
    samples = []
    for number, holder in enumerate(HOLDERS[:CAROL]):
        rest = number in {ALICE, BOB}
        base = HostSample(holder, at, 0.01 if rest else 3.5, 8.0 * 2**30, 100.0, 50.0, 0.25)
        if rest:
            base = msgspec.structs.replace(
                base,
                kernel_busy=False,
                kernel_last_activity=at - timedelta(hours=9),
                terminal_last_activity=at - timedelta(hours=8) if number == ALICE else None,
            )
        if number in {FRAUD, BERT}:
            result = Histogram("e2e", (0.5, 1.0), (600.0, 1080.0, 1200.0), 720.0)
            base = msgspec.structs.replace(
                base, requests_running=3.0, requests_total=1200.0, latencies=(result,)
            )
        if number == TRAIN:
            base = msgspec.structs.replace(
                base, pace=TrainingMetrics(12_000.0, 3.0 * 2**34, 2.0**36)
            )
        samples.append(base)
    return samples


def objects(plan: Sequence[tuple[int, str]] = PLAN) -> Mapping[str, list[dict[str, Any]]]:
    """Return the cluster's objects as the API prints them."""
    made = "2026-11-19T08:00:00Z"
    pods = []
    for number, holder in enumerate(HOLDERS):
        held = [d for d, (h, _) in zip(DEVICES, plan, strict=True) if h == number]
        if not held:
            continue
        wanted = f"nvidia.com/mig-{held[0].profile}" if held[0].profile else "nvidia.com/gpu"
        request = {"cpu": "500m", "memory": "16Gi", wanted: str(len(held))}
        owner = (holder.workload_kind, holder.workload)
        if holder.workload_kind == "Deployment":
            owner = ("ReplicaSet", holder.pod.rpartition("-")[0])
        pods.append(
            {
                "metadata": {
                    "name": holder.pod,
                    "namespace": holder.namespace,
                    "uid": holder.uid,
                    "creationTimestamp": made,
                    "labels": {"team": holder.team, "app.kubernetes.io/name": holder.workload},
                    "ownerReferences": [
                        _reference(*owner)
                    ],
                },
                "spec": {
                    "nodeName": held[0].node,
                    "containers": [
                        {"name": holder.container, "image": "registry.example/x",
                         "resources": {"requests": request, "limits": request}}
                    ],
                },
                "status": {
                    "phase": "Running",
                    "qosClass": "Burstable",
                    "startTime": "2026-11-19T08:00:20Z",
                    "podIP": "10.1.0.9",
                    "hostIP": "10.0.0.1",
                    "conditions": [
                        {"type": "PodScheduled", "status": "True", "lastTransitionTime": made}
                    ],
                    "containerStatuses": [
                        {"name": holder.container, "state": {"running": {"startedAt": made}}}
                    ],
                },
            }
        )  # fmt: skip
    nodes = [
        _node(A, made, {"nvidia.com/gpu": "8"}, "NVIDIA-H100-80GB-HBM3"),
        _node(B, made, {"nvidia.com/mig-1g.5gb": "3"}, "NVIDIA-A100-SXM4-40GB"),
        _node(C, made, {"nvidia.com/gpu": "1"}, "Tesla-T4"),
    ]
    above = [_object(h, h.workload_kind, h.workload) for h in HOLDERS]
    for number in (FRAUD, BERT):
        holder = HOLDERS[number]
        made_by = _reference("Deployment", holder.workload)
        above.append(_object(holder, "ReplicaSet", holder.pod.rpartition("-")[0], made_by))
    by_kind: dict[str, list[dict[str, Any]]] = {}
    for item in above:
        by_kind.setdefault(item["kind"], []).append(item)
    spaces = [{"metadata": {"name": "team-risk", "labels": {"team": "risk"}}}]
    return {"Pod": pods, "Node": nodes, "Namespace": spaces, **by_kind}


_GROUPS = {"Job": "batch/v1", "PyTorchJob": "kubeflow.org/v1"}


def _reference(kind: str, name: str) -> dict[str, Any]:
    api = _GROUPS.get(kind, "apps/v1")
    uid = f"uid-{kind}-{name}"
    return {"apiVersion": api, "kind": kind, "name": name, "uid": uid, "controller": True}


def _object(
    holder: Holder, kind: str, name: str, above: dict[str, Any] | None = None
) -> dict[str, Any]:
    made = _reference(kind, name)
    meta = {"name": name, "namespace": holder.namespace, "uid": made["uid"]}
    owners = {"ownerReferences": [above]} if above else {}
    return {"apiVersion": made["apiVersion"], "kind": kind, "metadata": {**meta, **owners}}


def _node(name: str, made: str, devices: Mapping[str, str], product: str) -> dict[str, Any]:
    resources = {"cpu": "192", "memory": "2097152Mi", **devices}
    return {
        "metadata": {
            "name": name,
            "uid": f"uid-{name}",
            "creationTimestamp": made,
            "labels": {
                "nvidia.com/gpu.product": product,
                "node.kubernetes.io/instance-type": "p5.48xlarge",
                "topology.kubernetes.io/zone": "us-east-1a",
                "capacityType": "ON_DEMAND",
            },
        },
        "spec": {
            "providerID": "aws:///us-east-1a/i-0abc",
            "taints": [{"key": "nvidia.com/gpu", "effect": "NoSchedule"}],
        },
        "status": {
            "allocatable": resources,
            "capacity": resources,
            "conditions": [{"type": "Ready", "status": "True"}],
            "nodeInfo": {"kubeletVersion": "v1.34.1", "systemUUID": f"uuid-{name}"},
        },
    }


class World:
    """A source whose look the test turns on."""

    def __init__(
        self, shown: Block | None = None, tenures: Sequence[DeviceAllocation] = ()
    ) -> None:
        self.block = shown or block()
        self.tenures = tenures
        self.turn(0)

    def turn(self, tick: int) -> None:
        """Make another tick the present one."""
        at = datetime.fromtimestamp(float(self.block.ticks[tick]), UTC)
        self.now = WorldSnapshot(self.block, tick, objects(), hosts(at), self.tenures)

    def snapshot(self) -> WorldSnapshot:
        """Return the present look."""
        return self.now
