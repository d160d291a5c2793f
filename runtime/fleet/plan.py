"""Who holds what: `workloads.csv` laid out over nodes, devices and pods."""

import csv
import uuid
from importlib.resources import files

import msgspec

GPUS_PER_NODE = 8
SLICES = 7  # compute slices of one physical GPU, the MIG unit


class Model(msgspec.Struct, frozen=True):
    """What the fleet's exporters and nodes say of one GPU model."""

    name: str
    label: str
    instance_type: str
    memory_mib: int
    base_w: float
    full_w: float
    context_w: float
    bare_w: float


MODELS = {
    # Watts: power = 134 + 610 * SM_ACTIVE on H100, 120 W with an idle context, 70 W bare
    # (domain.md sections 1.5 and 2.2; arXiv 2605.23918); A100 scaled to its 400 W.
    "H100": Model("NVIDIA H100 80GB HBM3", "NVIDIA-H100-80GB-HBM3", "p5.48xlarge", 81559,
                  134, 610, 120, 70),
    "A100": Model("NVIDIA A100-SXM4-80GB", "NVIDIA-A100-SXM4-80GB", "p4de.24xlarge", 81920,
                  110, 300, 98, 58),
}  # fmt: skip


class Pod(msgspec.Struct, frozen=True):
    """One pod of the fleet. `begin` and `end` are shares of the demo's time."""

    namespace: str
    team: str
    kind: str
    workload: str
    name: str
    uid: str
    node: str
    behaviour: str
    begin: float
    end: float
    request: str
    count: int
    member: int


class Device(msgspec.Struct, frozen=True):
    """A GPU or a MIG instance, and the pods that hold it one after the other."""

    uuid: str
    node: str
    index: int
    model: Model
    profile: str | None
    instance: int | None
    weight: float
    pods: tuple[Pod, ...]
    rank: int


class Fleet(msgspec.Struct, frozen=True):
    """All nodes (with their model), devices and pods."""

    nodes: dict[str, Model]
    devices: tuple[Device, ...]
    pods: tuple[Pod, ...]
    gpus: int


def lay_out(gpus: int, seed: int) -> Fleet:
    """Fill nodes of eight GPUs from `workloads.csv`, again from its start when it is used up.

    The last node is cut to what is left of `gpus`; a workload that does not fit is left out.
    """
    recipes = _recipes()
    nodes: dict[str, Model] = {}
    devices: list[Device] = []
    pods: list[Pod] = []
    for ordinal in range(-(-gpus // GPUS_PER_NODE)):
        turn, recipe = divmod(ordinal, len(recipes))
        rows = recipes[recipe]
        node = f"gpu-node-{ordinal + 1:03d}"
        nodes[node] = MODELS[rows[0]["model"]]
        size = min(GPUS_PER_NODE, gpus - ordinal * GPUS_PER_NODE)
        found = _fill(
            node, nodes[node], rows, size, suffix="" if turn == 0 else f"-{turn + 1}", seed=seed
        )
        devices += found
        pods += dict.fromkeys(pod for device in found for pod in device.pods)
    return Fleet(nodes, tuple(devices), tuple(pods), gpus)


def _recipes() -> list[list[dict[str, str]]]:
    text = files("runtime.fleet").joinpath("workloads.csv").read_text(encoding="utf-8")
    nodes: dict[str, list[dict[str, str]]] = {}
    for row in csv.DictReader(text.splitlines()):
        nodes.setdefault(row["node"], []).append(row)
    return list(nodes.values())


def _fill(
    node: str, model: Model, rows: list[dict[str, str]], size: int, *, suffix: str, seed: int
) -> list[Device]:
    holders: dict[int, list[tuple[Pod, int]]] = {index: [] for index in range(size)}
    instances: list[tuple[str, Pod]] = []
    mig = any("g." in row["gpus"] for row in rows)
    for row in rows:
        for member in range(int(row["pods"])):
            pod = _pod(row, node, member, suffix, seed)
            if "g." in row["gpus"]:
                instances.append((row["gpus"], pod))
                continue
            free = [
                index
                for index, held in holders.items()
                if not (mig and index == 0) and all(p.end <= pod.begin for p, _ in held)
            ]
            if len(free) >= pod.count:
                for rank, index in enumerate(free[: pod.count]):
                    holders[index].append((pod, rank))
    out: list[Device] = []
    for index, held in holders.items():
        identity = f"GPU-{uuid.uuid5(uuid.NAMESPACE_DNS, f'{seed}/{node}/{index}')}"
        if mig and index == 0:
            out += _instances(identity, node, model, instances)
            continue
        own = tuple(pod for pod, _ in held)
        rank = held[0][1] if held else 0
        out.append(Device(identity, node, index, model, None, None, 1.0, own, rank))
    return out


def _instances(identity: str, node: str, model: Model, held: list[tuple[str, Pod]]) -> list[Device]:
    """Split one GPU: the held instances, then free 1g ones for the slices left over."""
    out: list[Device] = []
    left = SLICES
    for number, (profile, pod) in enumerate(held, start=1):
        slices = int(profile[0])
        left -= slices
        out.append(Device(identity, node, 0, model, profile, number, slices / SLICES, (pod,), 0))
    out += [
        Device(identity, node, 0, model, "1g.10gb", number, 1 / SLICES, (), 0)
        for number in range(len(held) + 1, len(held) + 1 + left)
    ]
    return out


def _pod(row: dict[str, str], node: str, member: int, suffix: str, seed: int) -> Pod:
    workload = row["name"] + suffix
    stem = f"{seed}/{row['namespace']}/{workload}/{node}/{member}"
    uid = str(uuid.uuid5(uuid.NAMESPACE_DNS, stem))
    fractional = "g." in row["gpus"]
    return Pod(
        namespace=row["namespace"],
        team=row["team"],
        kind=row["kind"],
        workload=workload,
        name=_pod_name(row["kind"], workload, node, uid),
        uid=uid,
        node=node,
        behaviour=row["behaviour"],
        begin=float(row["begin"]),
        end=float(row["end"]),
        request=f"nvidia.com/mig-{row['gpus']}" if fractional else "nvidia.com/gpu",
        count=1 if fractional else int(row["gpus"]),
        member=member,
    )


def _pod_name(kind: str, workload: str, node: str, uid: str) -> str:
    """Return the name the kind's controller would give."""
    if kind == "Notebook":
        return f"{workload}-0"
    if kind == "Deployment":
        return f"{workload}-{template_hash(workload)}-{uid[:5]}"
    if kind == "PyTorchJob":
        return f"{workload}-worker-{int(node[-3:])}"
    if kind == "RayCluster":
        return f"{workload}-worker-{uid[:5]}"
    return f"{workload}-{uid[:5]}"


def template_hash(workload: str) -> str:
    """Return the pod template hash of a Deployment: ten characters of its own alphabet."""
    alphabet = "bcdfghjklmnpqrstvwxz2456789"
    number = uuid.uuid5(uuid.NAMESPACE_DNS, workload).int
    return "".join(alphabet[(number >> (5 * i)) % len(alphabet)] for i in range(9))
