"""Define the scheduler's input and output.

Units: thousandths of a core and of a GPU, MiB, seconds since the epoch. A pod requests whole GPUs
(`gpus`, `gpu_milli` 1000), a share of each of them, or MIG instances (`profile`).
"""

from collections.abc import Mapping
from typing import Literal

import msgspec

Policy = Literal["first-fit", "best-fit", "fgd"]
POLICIES: tuple[Policy, ...] = ("first-fit", "best-fit", "fgd")
WHOLE = 1000
"""Milli-GPU of a whole device."""


class NodeTaint(msgspec.Struct, frozen=True):
    """A node's taint; effect NoSchedule, NoExecute or PreferNoSchedule."""

    key: str
    value: str = ""
    effect: str = "NoSchedule"


class PodToleration(msgspec.Struct, frozen=True):
    """A pod's toleration: an empty key with Exists tolerates all, an empty effect every effect."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""


class PodRequest(msgspec.Struct, frozen=True):
    """What one pod needs."""

    uid: str
    name: str
    """`namespace/pod`: breaks ties of age."""
    cpu_milli: int = 0
    memory_mib: int = 0
    gpus: int = 0
    """Devices, or MIG instances when there is a profile; on a time-sliced node, replicas."""
    gpu_milli: int = WHOLE
    """Of each device; under 1000 is a share (HAMi cores, KAI fraction)."""
    gpu_memory_mib: int = 0
    """Of each device, 0 = not requested; the greater of memory's and cores' share is taken."""
    profile: str = ""
    """MIG: `1g.10gb`; empty = no MIG."""
    gpu_models: tuple[str, ...] = ()
    """Canonical models that the pod accepts; empty = any."""
    selector: tuple[tuple[str, str], ...] = ()
    """Node labels that must be equal, sorted."""
    excluded: tuple[tuple[str, str], ...] = ()
    """Node labels that must differ (the operator NotIn), sorted."""
    tolerations: tuple[PodToleration, ...] = ()
    priority: int = 0
    created_s: float = 0.0
    preempts: bool = True
    """False: preemptionPolicy Never."""
    gang: str = ""
    """`namespace/podgroup`; its pods are placed and evicted together."""


def get_size(m: PodRequest) -> tuple[object, ...]:
    """Return the key that pods share which fit into the same places."""
    amounts = (m.cpu_milli, m.memory_mib, m.gpus, m.gpu_milli, m.gpu_memory_mib, m.profile)
    return (*amounts, m.gpu_models, m.selector, m.excluded, m.tolerations)


class PodGang(msgspec.Struct, frozen=True):
    """Pods that are placed together or not at all; a single pod is a gang of one."""

    name: str
    members: tuple[PodRequest, ...]
    min_members: int = 0
    """How many must fit (PodGroup `minMember`); 0 = all."""


class MigInstance(msgspec.Struct, frozen=True):
    """A MIG instance on a GPU: where it starts on the axis of memory slices."""

    profile: str
    start: int
    allocated: bool = False


class MigDevice(msgspec.Struct, frozen=True):
    """A GPU in MIG mode."""

    instances: tuple[MigInstance, ...] = ()
    fixed: bool = True
    """True: only these instances are served (mig-manager). False: they are created on demand."""


class NodeFree(msgspec.Struct, frozen=True):
    """What is free on a node, and which pods may use it."""

    name: str
    cpu_milli: int
    memory_mib: int
    pods: int = 110
    gpu_milli: tuple[int, ...] = ()
    """Free part of each device by index; of a GPU in MIG mode it is ignored."""
    gpu_model: str = ""
    """Canonical (`fallow/gpu_models.csv`) or a site's own name; MIG needs a canonical one."""
    mig: tuple[MigDevice | None, ...] = ()
    """By device; empty = no MIG on the node."""
    mig_strategy: Literal["mixed", "single"] = "mixed"
    """single: a pod's whole GPU is any one instance of the node's."""
    replicas: int = 1
    """Time slicing: pods per device; a pod's whole GPU is then one replica."""
    labels: Mapping[str, str] = {}
    taints: tuple[NodeTaint, ...] = ()
    open: bool = True
    """False: cordoned or not ready."""


class Placement(msgspec.Struct, frozen=True):
    """Where a pod is placed."""

    uid: str
    node: str
    devices: tuple[int, ...] = ()
    """Indices on the node, one for each GPU or instance asked."""
    gpu_milli: int = 0
    """Taken of each of the devices; 0 for MIG."""
    instances: tuple[MigInstance, ...] = ()
    """MIG: one beside each device."""

    @property
    def share(self) -> float:
        """Part of each device, 0-1; 1 for a MIG instance, which is its own device."""
        return 1.0 if self.instances or not self.devices else self.gpu_milli / WHOLE


class Running(msgspec.Struct, frozen=True):
    """A placed pod: its request, its placement, its start."""

    request: PodRequest
    placement: Placement
    started_s: float = 0.0
