"""What the demo plants: its work, and everything that analyzers find beside idle devices.

`tests/runtime/demo_kinds.csv` lists the kinds of findings, planted or not.
"""

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from fallow.tables import Batch
from fallow.window import Window
from runtime.experiments.demo_actions import APPROVED
from simulator.arrivals import Category, replace_shares
from simulator.cluster.nodes import SimulatedNode, build_fleet
from simulator.hardware_faults import HardwareFault
from simulator.world import Heat, Spec, World

CLUSTER = "demo"
HOUR_S = 3600.0
DAY_S = 24 * HOUR_S
MIX = {
    "pretrain": 0.14, "train": 0.01, "train-wide": 0.02, "input-bound": 0.02, "idle-rank": 0.05,
    "kept": 0.05, "day-notebook": 0.06, "forgotten": 0.04, "night": 0.04, "train-a100": 0.01,
    "straggling": 0.02, "abandoned": 0.06, "batch": 0.004, "bursty": 0.05, "scoring": 0.004,
}  # fmt: skip
"""Fewer short jobs than in a real fleet, so that the story is about large findings."""
FAULTS = (
    ("h100-3", "xid", 1.6, 7.0, 5), ("h100-3", "xid", 4.3, 5.0, 5),
    ("a100-1", "node-lost", 3.4, 1.3, None),
    ("h100-spot-0", "spot", 2.5, 0.7, None), ("h100-spot-0", "spot", 5.2, 0.5, None),
)  # fmt: skip
"""Faults by node: days after the start, hours, GPU."""
TEAM_BUDGETS = {"data": 60_000, "genai": 200_000, "search": 90_000, "speech": 60_000}
"""Budgets of teams in dollars a month, some too small."""
QUEUES = {"genai": 0.75, "data": 0.5}
"""Quotas of queues as shares of the fleet; together they are more than it."""
NOMINAL_QUOTAS = {"team-genai": (40, 44), "team-search": (12, 12)}
"""Elastic quotas of namespaces: GPUs that each is entitled to, and its most. The first is too small
for its jobs; the second lends what it does not use, and keeps idle GPUs."""
STATIC_QUOTAS = {"team-bio": 12, "team-speech": 32, "team-vision": 20}
"""ResourceQuotas of namespaces: each is for the most that its team needs, which is at other times
than the others' most, and lends nothing."""
DEADLINE = ("train-a100", 24, 10)
"""Work whose owner states when it has to be done: category, hours of work, days after the end."""
COOLING_FAULTS = (("h100-1", 2, 1.0, 4.0),)
"""GPUs whose cooling fails: first and last day."""
MIXED = ("l4-0", "l40s")
"""A node, and the pool of another GPU model that it is a member of."""
LOST_GPU = ("l40s-2", 3, 5.0)
"""A GPU that falls off its bus: node, index, and the day since when no exporter shows it."""
GHOST_GPUS = 6
"""GPUs that a queue goes on counting for a job that was deleted."""
STORAGE = {
    "least_days": 7,
    "cache_usd_per_gib_month": 0.08,
    "classes": [
        {"name": "ssd", "usd_per_gib_month": 0.17},
        {"name": "standard", "usd_per_gib_month": 0.023, "write_usd_per_gib": 0.01},
        {"name": "cold", "usd_per_gib_month": 0.0125, "retrieval_usd_per_gib": 0.01},
    ],
    "datasets": [
        {
            "name": "frames", "namespace": "team-vision", "claim": "day-notebook-1-home",
            "gib": 4000, "storage_class": "ssd",
        },
        {
            "name": "clicks", "namespace": "ads-train", "claim": "clicks",
            "gib": 300, "storage_class": "cold",
        },
    ],
}  # fmt: skip
"""Prices of storage, and a dataset in a class that costs more than its few reads need."""


def build_settings(home: Path, window: Window) -> dict[str, Any]:
    """Return the settings that a demo home brings: its policies, budgets and commitments."""
    year = {
        "provider": "aws", "region": "us-east-1",
        "start": window.start - timedelta(days=100), "end": window.start + timedelta(days=265),
    }  # fmt: skip
    reserved = [
        {
            "name": "h100-1y", "instance_type": "p5.48xlarge", "gpu_model": "H100",
            "nodes": 4, "gpus_per_node": 8, "usd_per_node_hour": 42.0, **year,
        },
        {
            "name": "a10g-1y", "instance_type": "g5.4xlarge", "gpu_model": "A10G",
            "nodes": 2, "gpus_per_node": 1, "usd_per_node_hour": 1.02, **year,
        },
    ]  # fmt: skip
    return {
        "cluster": CLUSTER,
        "kubernetes": {"transport": "simulated"},
        "dashboard": {"approve_without_sign_in": True},
        "actions": {"policies": str(home.absolute() / "policies"), "concurrent": APPROVED},
        "finance": {"usd_per_month": 550_000, "teams_usd_per_month": TEAM_BUDGETS},
        "prices": {"commitments": reserved, "by_model": {"A30": 0.62}},
        "datapath": STORAGE,
    }


def plant_world(gpus: int, start_s: float, seconds: float) -> Spec:
    """Return the demo's world: the workload mix, and the faults of the nodes that it has."""
    nodes = _mix_pools(build_fleet(gpus))
    node_names, end_s = {n.name for n in nodes}, start_s + seconds
    faults = [
        HardwareFault(at_s, node, why, at_s + hours * 3600, index)
        for node, why, day, hours, index in FAULTS
        if node in node_names and (at_s := start_s + day * DAY_S) < end_s
    ]
    heat = [
        Heat(node, index, start_s + first * DAY_S, start_s + last * DAY_S)
        for node, index, first, last in COOLING_FAULTS
        if node in node_names
    ]
    return Spec(
        nodes=nodes,
        start_s=start_s,
        mix=tuple(_state_deadline(category, end_s) for category in replace_shares(MIX)),
        horizon_s=seconds,
        planted=tuple(faults),
        heat=tuple(heat),
    )


def _state_deadline(category: Category, end_s: float) -> Category:
    name, work_h, days = DEADLINE
    if category.category != name:
        return category
    deadline = datetime.fromtimestamp(end_s + days * DAY_S, UTC)
    stated = (
        ("fallow.dev/deadline", deadline.isoformat()),
        ("fallow.dev/work-hours", str(work_h)),
    )
    return msgspec.structs.replace(category, annotations=stated)


def _mix_pools(nodes: tuple[SimulatedNode, ...]) -> tuple[SimulatedNode, ...]:
    name, other_name = MIXED
    other = next((node.pool for node in nodes if node.pool.name == other_name), None)
    if other is None:
        return nodes
    return tuple(
        SimulatedNode(
            node.name,
            msgspec.structs.replace(node.pool, name=other.name, manager=other.manager)
            if node.name == name
            else node.pool,
        )
        for node in nodes
    )


def build_ghost() -> Iterator[dict[str, Any]]:
    """Yield a LocalQueue and the Workload of a deleted job: Kueue admits it and counts it on."""
    meta = {"name": "data", "namespace": "team-data"}
    requests = {"nvidia.com/gpu": str(GHOST_GPUS)}
    container = {"name": "main", "resources": {"requests": requests, "limits": requests}}
    pods = {"name": "main", "count": 1, "template": {"spec": {"containers": [container]}}}
    kueue = "kueue.x-k8s.io/v1beta1"
    yield {"apiVersion": kueue, "kind": "ResourceFlavor", "metadata": {"name": "any"}}
    yield {
        "apiVersion": kueue,
        "kind": "LocalQueue",
        "metadata": meta,
        "spec": {"clusterQueue": "data"},
    }
    yield {
        "apiVersion": kueue,
        "kind": "Workload",
        "metadata": {**meta, "name": "job-deleted-5f1c8"},
        "spec": {"queueName": "data", "podSets": [pods]},
    }


def build_queues(gpus: int) -> Iterator[dict[str, Any]]:
    """Yield queues of one cohort whose quotas promise more GPUs than the fleet has."""
    for name, share in QUEUES.items():
        quota = {"name": "nvidia.com/gpu", "nominalQuota": str(round(gpus * share))}
        group = {"coveredResources": ["nvidia.com/gpu"]}
        flavors = [{"name": "any", "resources": [quota]}]
        yield {
            "apiVersion": "kueue.x-k8s.io/v1beta1",
            "kind": "ClusterQueue",
            "metadata": {"name": name},
            "spec": {"cohort": "research", "resourceGroups": [{**group, "flavors": flavors}]},
        }


def build_namespace_quotas() -> Iterator[dict[str, Any]]:
    """Yield the quotas of namespaces: elastic ones, and static ones."""
    gpu = "nvidia.com/gpu"
    for namespace, (least, most) in NOMINAL_QUOTAS.items():
        yield {
            "apiVersion": "scheduling.x-k8s.io/v1alpha1",
            "kind": "ElasticQuota",
            "metadata": {"name": "gpus", "namespace": namespace, "uid": f"quota-{namespace}"},
            "spec": {"min": {gpu: str(least)}, "max": {gpu: str(most)}},
        }
    for namespace, most in STATIC_QUOTAS.items():
        hard = {f"requests.{gpu}": str(most)}
        yield {
            "apiVersion": "v1",
            "kind": "ResourceQuota",
            "metadata": {"name": "gpus", "namespace": namespace, "uid": f"static-{namespace}"},
            "spec": {"hard": hard},
            "status": {"hard": hard, "used": {f"requests.{gpu}": "0"}},
        }


def hide_lost_gpu(world: World, batches: Iterable[Batch]) -> Iterator[Batch]:
    """Leave out the samples of a GPU that fell off its bus: its exporter does not show it."""
    node, index, day = LOST_GPU
    since = datetime.fromtimestamp(world.spec.start_s + day * DAY_S, UTC).replace(tzinfo=None)
    lost = pa.array(
        [d.uuid for d in world.devices if (d.node, d.index) == (node, index)], pa.string()
    )
    for batch in batches:
        if batch.table == "sample":
            sample = batch.rows
            is_lost = pc.and_(
                pc.is_in(sample["device"], lost), pc.greater_equal(sample["ts"], since)
            )
            yield Batch("sample", sample.filter(pc.invert(is_lost)))
        else:
            yield batch


def add_disk_reads(batches: Iterable[Batch]) -> Iterator[Batch]:
    """Add what cAdvisor says of pods whose files are on the network: no reads from disks."""
    for batch in batches:
        if batch.table != "pod_sample":
            yield batch
            continue
        place = batch.rows.schema.get_field_index("fs_read_bps")
        field = batch.rows.schema.field(place)
        zeros = pa.repeat(pa.scalar(0.0, field.type), batch.rows.num_rows)
        yield Batch("pod_sample", batch.rows.set_column(place, field, zeros))
