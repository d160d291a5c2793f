"""The fields of Kubernetes objects that Fallow reads; everything else is skipped while decoding.

Names are the API's (camelCase by rename). A field that a server omits has its default, so that
a partial or an old object decodes; a field of another type makes the object undecodable, and
the look says so.
"""

from datetime import datetime
from typing import Any

import msgspec

from fallow.kube.shapes import Shape


class OwnerRef(Shape, frozen=True):
    """Who made an object."""

    kind: str
    name: str
    uid: str = ""
    api_version: str = ""
    controller: bool | None = None


class Meta(Shape, frozen=True):
    """What every object carries."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    creation_timestamp: datetime | None = None
    deletion_timestamp: datetime | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    owner_references: tuple[OwnerRef, ...] | None = ()


class Partial(Shape, frozen=True):
    """An object of which only the metadata was asked for."""

    metadata: Meta


class Condition(Shape, frozen=True):
    """One condition of a status."""

    type: str
    status: str
    last_transition_time: datetime | None = None
    reason: str | None = None


class Taint(Shape, frozen=True):
    """One taint of a node."""

    key: str
    effect: str
    value: str | None = None


class NodeSpec(Shape, frozen=True):
    """What a node is told."""

    provider_id: str | None = msgspec.field(default=None, name="providerID")
    unschedulable: bool | None = None
    taints: list[Taint] | None = None


class Address(Shape, frozen=True):
    """One address of a node; its type is `InternalIP`, `Hostname` and the like."""

    type: str
    address: str


class NodeStatus(Shape, frozen=True):
    """What a node has."""

    capacity: dict[str, str | int] | None = None
    allocatable: dict[str, str | int] | None = None
    conditions: list[Condition] | None = None
    addresses: tuple[Address, ...] | None = None


class Node(Shape, frozen=True):
    """A node."""

    metadata: Meta
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


class Resources(Shape, frozen=True):
    """Requests and limits of a container or a pod."""

    requests: dict[str, str | int] | None = None
    limits: dict[str, str | int] | None = None


class Port(Shape, frozen=True):
    """A port of a container, of which its node's matters here."""

    host_port: int | None = None
    protocol: str = "TCP"


class Container(Shape, frozen=True):
    """A container; an init container with restart policy Always is a sidecar."""

    name: str
    resources: Resources | None = None
    restart_policy: str | None = None
    ports: list[Port] | None = None


class ClaimVolume(Shape, frozen=True):
    """A volume's claim."""

    claim_name: str


class EmptyDir(Shape, frozen=True):
    """A volume that lives and dies with its pod, on disk or (medium `Memory`) not."""

    medium: str = ""


class HostPath(Shape, frozen=True):
    """A folder of the node."""

    path: str = ""


class Volume(Shape, frozen=True):
    """A pod's volume: a claim, or data of its node."""

    name: str = ""
    persistent_volume_claim: ClaimVolume | None = None
    empty_dir: EmptyDir | None = None
    host_path: HostPath | None = None


class Expression(Shape, frozen=True):
    """One expression of a node selector."""

    key: str
    operator: str = "In"
    values: tuple[str, ...] | None = None


class Term(Shape, frozen=True):
    """One of the alternatives of a required node affinity."""

    match_expressions: tuple[Expression, ...] | None = None


class Required(Shape, frozen=True):
    """What a node must be, as alternatives."""

    node_selector_terms: tuple[Term, ...] | None = None


class NodeAffinity(Shape, frozen=True):
    """Node affinity, of which only what is required matters here."""

    required: Required | None = msgspec.field(
        default=None, name="requiredDuringSchedulingIgnoredDuringExecution"
    )


class PodTerm(Shape, frozen=True):
    """Pods to be near to or far from, and what counts as near."""

    topology_key: str = ""
    label_selector: dict[str, Any] | None = None
    namespaces: tuple[str, ...] | None = None
    namespace_selector: dict[str, Any] | None = None


class PodAffinity(Shape, frozen=True):
    """Affinity to pods or against them, of which only what is required matters here."""

    required: tuple[PodTerm, ...] | None = msgspec.field(
        default=None, name="requiredDuringSchedulingIgnoredDuringExecution"
    )


class Affinity(Shape, frozen=True):
    """Affinity of a pod."""

    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class Spread(Shape, frozen=True):
    """How evenly pods are to stand over parts of the cluster."""

    topology_key: str = ""
    max_skew: int = 1
    when_unsatisfiable: str = "DoNotSchedule"
    label_selector: dict[str, Any] | None = None


class Toleration(Shape, frozen=True):
    """A taint that a pod bears; without a key, every taint."""

    key: str | None = None
    operator: str | None = None
    value: str | None = None
    effect: str | None = None


class PodSpec(Shape, frozen=True):
    """What a pod asks for."""

    node_name: str | None = None
    priority_class_name: str | None = None
    containers: list[Container] | None = None
    init_containers: list[Container] | None = None
    overhead: dict[str, str | int] | None = None
    resources: Resources | None = None
    volumes: list[Volume] | None = None
    node_selector: dict[str, str] | None = None
    affinity: Affinity | None = None
    topology_spread_constraints: list[Spread] | None = None
    tolerations: list[Toleration] | None = None


class Terminated(Shape, frozen=True):
    """How a container ended."""

    finished_at: datetime | None = None
    reason: str | None = None


class ContainerState(Shape, frozen=True):
    """What a container is doing."""

    terminated: Terminated | None = None


class ContainerStatus(Shape, frozen=True):
    """How a container fares."""

    state: ContainerState | None = None
    name: str | None = None
    last_state: ContainerState | None = None


class PodStatus(Shape, frozen=True):
    """How a pod fares."""

    phase: str | None = None
    qos_class: str | None = None
    start_time: datetime | None = None
    conditions: list[Condition] | None = None
    container_statuses: list[ContainerStatus] | None = None
    pod_ip: str | None = msgspec.field(default=None, name="podIP")


class Pod(Shape, frozen=True):
    """A pod."""

    metadata: Meta
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()


class Involved(Shape, frozen=True):
    """Whom an event is about."""

    kind: str | None = None
    namespace: str | None = None
    name: str | None = None
    uid: str | None = None


class EventSeries(Shape, frozen=True):
    """A repeated event."""

    count: int | None = None
    last_observed_time: datetime | None = None


class Event(Shape, frozen=True):
    """An event of the core group."""

    metadata: Meta
    involved_object: Involved = Involved()
    reason: str | None = None
    type: str | None = None
    message: str | None = None
    count: int | None = None
    first_timestamp: datetime | None = None
    last_timestamp: datetime | None = None
    event_time: datetime | None = None
    series: EventSeries | None = None


class Custom(Shape, frozen=True):
    """A custom object whose spec and status differ by version: read with care."""

    metadata: Meta
    spec: dict[str, Any] | None = None
    status: dict[str, Any] | None = None


class Change(Shape, frozen=True):
    """One line of a watch; the object is decoded once its kind of change is known."""

    type: str
    object: msgspec.Raw
