"""Define the fields of Kubernetes objects that Fallow reads; decoding skips all others.

Names are the API's (camelCase by rename). A field that a server omits has its default, so that a
partial or old object can be decoded. A field of another type counts as absent, and `unreadable` of
the metadata names it (`readable.py`).
"""

from datetime import datetime
from typing import Any

import msgspec

from fallow.kube.api_objects import ApiObject
from fallow.protections import UNREADABLE, select_protections


class OwnerRef(ApiObject, frozen=True):
    """A reference to an owner."""

    kind: str
    name: str
    uid: str = ""
    api_version: str = ""
    controller: bool | None = None


class Meta(ApiObject, frozen=True):
    """The metadata of every object."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    generation: int | None = None
    resource_version: str = ""
    creation_timestamp: datetime | None = None
    deletion_timestamp: datetime | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    owner_references: tuple[OwnerRef, ...] | None = ()
    unreadable: str = msgspec.field(default="", name=UNREADABLE)
    """The fields of the object that cannot be read (`readable.py`); no server sends this name."""

    @property
    def protections(self) -> dict[str, str]:
        """What the table of protections names on the object; unreadable ones are protected."""
        selected = select_protections(self.labels, self.annotations)
        selected.pop(UNREADABLE, None)
        return selected | {UNREADABLE: self.unreadable} if self.unreadable else selected


class Partial(ApiObject, frozen=True):
    """An object of which only the metadata was requested."""

    metadata: Meta


class Condition(ApiObject, frozen=True):
    """One condition of a status."""

    type: str
    status: str
    last_transition_time: datetime | None = None
    reason: str | None = None
    message: str | None = None


class Taint(ApiObject, frozen=True):
    """One taint of a node."""

    key: str
    effect: str
    value: str | None = None


class NodeSpec(ApiObject, frozen=True):
    """The specification of a node."""

    provider_id: str | None = msgspec.field(default=None, name="providerID")
    unschedulable: bool | None = None
    taints: list[Taint] | None = None


class Address(ApiObject, frozen=True):
    """One address of a node; its type is `InternalIP`, `Hostname` and the like."""

    type: str
    address: str


class NodeStatus(ApiObject, frozen=True):
    """The status of a node."""

    capacity: dict[str, str | int] | None = None
    allocatable: dict[str, str | int] | None = None
    conditions: list[Condition] | None = None
    addresses: tuple[Address, ...] | None = None


class Node(ApiObject, frozen=True):
    """A node."""

    metadata: Meta
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


class Resources(ApiObject, frozen=True):
    """Requests and limits of a container or a pod."""

    requests: dict[str, str | int] | None = None
    limits: dict[str, str | int] | None = None


class Port(ApiObject, frozen=True):
    """A port of a container, of which its node's matters here."""

    host_port: int | None = None
    protocol: str = "TCP"


class ContainerSpec(ApiObject, frozen=True):
    """A container; an init container with restart policy Always is a sidecar."""

    name: str
    resources: Resources | None = None
    restart_policy: str | None = None
    ports: list[Port] | None = None


class ClaimVolume(ApiObject, frozen=True):
    """A volume's claim."""

    claim_name: str


class EmptyDir(ApiObject, frozen=True):
    """A volume that exists as long as its pod, on disk or in memory (medium `Memory`)."""

    medium: str = ""


class HostPath(ApiObject, frozen=True):
    """A folder of the node."""

    path: str = ""


class Volume(ApiObject, frozen=True):
    """A pod's volume: a claim, or data of its node."""

    name: str = ""
    persistent_volume_claim: ClaimVolume | None = None
    empty_dir: EmptyDir | None = None
    host_path: HostPath | None = None


class Expression(ApiObject, frozen=True):
    """One expression of a node selector."""

    key: str
    operator: str = "In"
    values: tuple[str, ...] | None = None


class Term(ApiObject, frozen=True):
    """One of the alternatives of a required node affinity."""

    match_expressions: tuple[Expression, ...] | None = None
    match_fields: tuple[Expression, ...] | None = None


class RequiredNodeTerms(ApiObject, frozen=True):
    """The required properties of a node, as alternatives."""

    node_selector_terms: tuple[Term, ...] | None = None


class NodeAffinity(ApiObject, frozen=True):
    """Node affinity, of which only what is required matters here."""

    required: RequiredNodeTerms | None = msgspec.field(
        default=None, name="requiredDuringSchedulingIgnoredDuringExecution"
    )


class PodTerm(ApiObject, frozen=True):
    """Pods to be near to or far from, and the topology that defines near."""

    topology_key: str = ""
    label_selector: dict[str, Any] | None = None
    namespaces: tuple[str, ...] | None = None
    namespace_selector: dict[str, Any] | None = None


class PodAffinity(ApiObject, frozen=True):
    """Affinity to pods or against them, of which only what is required matters here."""

    required: tuple[PodTerm, ...] | None = msgspec.field(
        default=None, name="requiredDuringSchedulingIgnoredDuringExecution"
    )


class Affinity(ApiObject, frozen=True):
    """Affinity of a pod."""

    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class SpreadConstraint(ApiObject, frozen=True):
    """How evenly pods must be spread over a topology."""

    topology_key: str = ""
    max_skew: int = 1
    when_unsatisfiable: str = "DoNotSchedule"
    label_selector: dict[str, Any] | None = None


class Toleration(ApiObject, frozen=True):
    """A taint that a pod tolerates; without a key, every taint."""

    key: str | None = None
    operator: str | None = None
    value: str | None = None
    effect: str | None = None


class PodSpec(ApiObject, frozen=True):
    """The specification of a pod."""

    node_name: str | None = None
    priority_class_name: str | None = None
    containers: list[ContainerSpec] | None = None
    init_containers: list[ContainerSpec] | None = None
    overhead: dict[str, str | int] | None = None
    resources: Resources | None = None
    volumes: list[Volume] | None = None
    node_selector: dict[str, str] | None = None
    affinity: Affinity | None = None
    topology_spread_constraints: list[SpreadConstraint] | None = None
    tolerations: list[Toleration] | None = None
    priority: int | None = None
    preemption_policy: str | None = None
    scheduler_name: str = ""
    resource_claims: list[dict[str, Any]] | None = None


class TerminatedState(ApiObject, frozen=True):
    """How a container ended."""

    started_at: datetime | None = None
    finished_at: datetime | None = None
    exit_code: int | None = None
    reason: str | None = None
    message: str | None = None


class WaitingState(ApiObject, frozen=True):
    """Why a container does not run yet."""

    reason: str | None = None


class ContainerState(ApiObject, frozen=True):
    """The state of a container."""

    terminated: TerminatedState | None = None
    waiting: WaitingState | None = None


class ContainerStatus(ApiObject, frozen=True):
    """The status of a container."""

    state: ContainerState | None = None
    name: str | None = None
    last_state: ContainerState | None = None
    restart_count: int | None = None


class PodStatus(ApiObject, frozen=True):
    """The status of a pod."""

    phase: str | None = None
    qos_class: str | None = None
    start_time: datetime | None = None
    conditions: list[Condition] | None = None
    container_statuses: list[ContainerStatus] | None = None
    pod_ip: str | None = msgspec.field(default=None, name="podIP")


class Pod(ApiObject, frozen=True):
    """A pod."""

    metadata: Meta
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()


class InvolvedObject(ApiObject, frozen=True):
    """The object of an event."""

    kind: str | None = None
    namespace: str | None = None
    name: str | None = None
    uid: str | None = None


class EventSeries(ApiObject, frozen=True):
    """A repeated event."""

    count: int | None = None
    last_observed_time: datetime | None = None


class Event(ApiObject, frozen=True):
    """An event of the core group."""

    metadata: Meta
    involved_object: InvolvedObject = InvolvedObject()
    reason: str | None = None
    type: str | None = None
    message: str | None = None
    count: int | None = None
    first_timestamp: datetime | None = None
    last_timestamp: datetime | None = None
    event_time: datetime | None = None
    series: EventSeries | None = None


class CustomObject(ApiObject, frozen=True):
    """A custom object; its spec and status differ by version, so they are read with care."""

    metadata: Meta
    spec: dict[str, Any] | None = None
    status: dict[str, Any] | None = None


class WatchEvent(ApiObject, frozen=True):
    """One line of a watch; the object is decoded once its kind of change is known."""

    type: str
    object: msgspec.Raw
