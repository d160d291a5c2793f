"""Map pods to rows of the `pod` table: their requests, their owners, their devices."""

import logging
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from fractions import Fraction
from functools import cache, lru_cache
from typing import Any

import msgspec

from collectors.inventory import DOUBTS, WHOLE, document, list_unknown_resources, mark_unreadable
from collectors.kube.claims import read_devices
from collectors.kube.constraints import read_constraints
from collectors.kube.devices import Dra, PodDevice, list_unsound_amounts
from collectors.kube.owners import Resolver, TopOwner, find_controller
from collectors.kube.queues import Queues
from collectors.kube.resources import list_running_requests, sum_limits, sum_requests
from collectors.kube.shapes import ContainerStatus, Meta, Pod, PodSpec, PodStatus, Term
from collectors.kube.table import parse_table
from fallow.kube.gpu_resources import (
    COUNTED,
    MOST_DEVICES,
    find_gpu_resource,
    read_hint,
    select_gpus,
)
from fallow.kube.pod_requests import Amounts
from fallow.kube.quantities import LARGEST_COLUMN, LONGEST, parse_milli, parse_quantity, parse_whole
from fallow.protections import NAMESPACE, OWN_DOMAIN, OWNERS, UNREADABLE, select_protections
from fallow.redaction import redact
from fallow.rejections import Rejection
from fallow.stored_annotations import (
    AFFINITY,
    CLAIMS,
    LOCAL_VOLUMES,
    NEVER_PREEMPTS,
    QUEUED,
    SELECTOR,
    TOLERATIONS,
)

log = logging.getLogger("fallow.kube")

KAI_FRACTION = "gpu-fraction"
KAI_MEMORY = "gpu-memory"
KAI_DEVICES = "gpu-fraction-num-devices"
DEFAULT = "default-scheduler"
KAI_KEYS = (KAI_FRACTION, KAI_MEMORY, KAI_DEVICES)
ENDED = frozenset({"Succeeded", "Failed"})
"""Phases of a pod that holds no device any more."""
OOM_KILLED = "OOMKilled"
"""Reason of a container that the kernel killed at its memory limit."""
LONGEST_MESSAGE = 1024
"""Characters of a message that are kept; the kubelet keeps 4096 of a termination message."""

_HIDES_REQUEST = re.compile(r"\$\.spec|annotations|[Rr]ecursion|decode")
"""Faults of an object that may hide what its pod requests of GPUs."""
_EVERYWHERE = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
_PERCENT = 100
_SEVERAL = 2
_MIB = 2**20


class PodContext(msgspec.Struct, frozen=True):
    """What a pod's row needs from other objects.

    `parts`: `Gpus.part` of each node. `registers`: the devices that HAMi
    registered on each node, with their MiB. `refused` gets the claims that take nothing.
    `namespaces`: their labels. `protections`: what the table of protections names on
    namespaces. `resolve` returns a pod's topmost owner. `is_whole`: what an object lacks does not
    exist; else the source may not show it, and its documents are null.
    """

    cluster: str
    now: Callable[[], datetime]
    resolve: Resolver
    team_labels: Sequence[str] = ()
    namespaces: Mapping[str, Mapping[str, str]] = {}
    protections: Mapping[str, Mapping[str, str]] = {}
    parts: Mapping[str, Fraction] = {}
    registers: Mapping[str, Mapping[str, float]] = {}
    refused: list[Rejection] = msgspec.field(default_factory=list)
    queues: Queues = msgspec.field(default_factory=Queues)
    dra: Dra = msgspec.field(default_factory=Dra)
    is_whole: bool = True


def build_pod_row(pod: Pod, context: PodContext) -> dict[str, Any]:
    """Return one row of the `pod` table; an owner that cannot be resolved is null.

    What cannot be read is null, and the row has the mark that protects the pod. Where that may be
    its request of GPUs, the request is null: it may hold any GPU of its node.
    """
    meta = pod.metadata
    try:
        row, unsound = _build_columns(pod, context), _list_unsound(pod)
        faults = [f"no amount that one pod has: {name} is {text[:24]!r}" for name, text in unsound]
        hidden = [name for name, _ in unsound if _find_limit(name) < LARGEST_COLUMN]
    except Exception as error:
        log.exception("a pod cannot be read", extra={"namespace": meta.namespace, "pod": meta.name})
        sound = Meta(
            meta.name, meta.namespace, meta.uid, creation_timestamp=meta.creation_timestamp
        )
        sound = msgspec.structs.replace(sound, owner_references=meta.owner_references)
        partial = msgspec.structs.replace(context, is_whole=False)
        bare = Pod(sound, PodSpec(pod.spec.node_name), PodStatus(pod.status.phase))
        row, faults = _build_columns(bare, partial), [f"{type(error).__name__}: {error}"]
        hidden = [""]
    if not faults and not meta.unreadable:
        return row
    if hidden or _HIDES_REQUEST.search(meta.unreadable):
        row["gpu_request"] = None
        row["gpu_resource"] = row.get("gpu_resource") or next(filter(None, hidden), None)
    return mark_unreadable("pod", row, list(filter(None, [meta.unreadable, *faults])))


def _list_unsound(pod: Pod) -> list[tuple[str, str]]:
    """Return the amounts of a pod that cannot be read, each with its beginning."""
    spec, annotations = pod.spec, pod.metadata.annotations
    sides = [c.resources for c in spec.containers or ()]
    if spec.init_containers:
        sides += [c.resources for c in spec.init_containers]
    maps = [m for s in (*sides, spec.resources) if s for m in (s.requests, s.limits)]
    unsound = [
        (name, str(text)[:LONGEST])
        for amounts in (*maps, spec.overhead)
        if amounts
        for name, text in amounts.items()
        if not _is_sound(name, str(text)[: LONGEST + 1])
    ]
    if not annotations:
        return unsound
    if pod.spec.scheduler_name != DEFAULT:
        fractions = (
            (key, annotations[key][: LONGEST + 1]) for key in KAI_KEYS if key in annotations
        )
        unsound += [amount for amount in fractions if not _is_sound(*amount)]
    return unsound + list_unsound_amounts(annotations)


@lru_cache(maxsize=4096)
def _is_sound(name: str, text: str) -> bool:
    value = parse_quantity(text)
    if name == "cpu":
        return parse_milli(value) is not None
    return value is not None and value <= _find_limit(name)


@cache
def _find_limit(name: str) -> int:
    if name == KAI_MEMORY:
        return LARGEST_COLUMN // _MIB
    if name == KAI_FRACTION:
        return 16
    resource = find_gpu_resource(name)
    counted = name in KAI_KEYS or (resource is not None and resource.form in COUNTED)
    return MOST_DEVICES if counted else LARGEST_COLUMN


def _build_columns(pod: Pod, context: PodContext) -> dict[str, Any]:
    meta, spec, status = pod.metadata, pod.spec, pod.status
    requested_amounts, capped = sum_requests(spec), sum_limits(spec)
    owner, top, now = find_controller(meta), context.resolve(meta), context.now()
    devices, refused = read_devices(pod, requested_amounts, context.dra, context.registers)
    context.refused.extend(refused)
    return {
        DOUBTS: list_unknown_resources(requested_amounts),
        WHOLE: context.is_whole,
        "cluster": context.cluster,
        "uid": meta.uid,
        "namespace": meta.namespace,
        "pod": meta.name,
        "node": spec.node_name or None,
        "phase": status.phase,
        "qos": status.qos_class,
        "owner_kind": owner.kind if owner else None,
        "owner_name": owner.name if owner else None,
        "workload_kind": top.kind if top else None,
        "workload": top.name if top else None,
        "workload_uid": top.uid if top else None,
        "team": _find_team(meta, context)
        or ("" if context.is_whole and meta.namespace in context.namespaces else None),
        "queue": context.queues.of(meta, top.uid if top else None),
        "priority_class": spec.priority_class_name,
        "priority": spec.priority,
        **_build_gpu_columns(pod, requested_amounts, devices, context),
        "cpu_request_milli": parse_milli(requested_amounts.get("cpu")),
        "cpu_limit_milli": parse_milli(capped.get("cpu")),
        "memory_request_bytes": parse_whole(requested_amounts.get("memory")),
        "created_at": meta.creation_timestamp,
        "scheduled_at": next(
            (
                c.last_transition_time
                for c in status.conditions or ()
                if c.type == "PodScheduled" and c.status == "True"
            ),
            None,
        ),
        "started_at": status.start_time,
        "finished_at": _find_end(pod),
        "deleted_at": meta.deletion_timestamp,
        "first_seen": now,
        "last_seen": now,
        **_build_documents(pod, top, devices, context),
    }


def _build_documents(
    pod: Pod, top: TopOwner | None, devices: Sequence[PodDevice], context: PodContext
) -> dict[str, str | None]:
    meta, spec = pod.metadata, pod.spec
    empty: dict[str, Any] | None = {} if context.is_whole else None
    return {
        "labels": document(meta.labels or empty),
        "annotations": document(
            _select_annotations(pod, top, context.protections.get(meta.namespace))
            | _describe_queued(context.queues.get_queued(meta, top.uid if top else None))
            or (empty if meta.annotations is None else {})
        ),
        # Of a claim whose devices are not known, an earlier list may have known them.
        "devices": build_devices_document(devices)
        if devices or (context.is_whole and not spec.resource_claims)
        else None,
        "constraints": document(read_constraints(spec) or empty),
        "unscheduled": document(_describe_unscheduled(pod) or empty),
        "containers": document(list_containers(pod)) if spec.containers else None,
    }


def list_containers(pod: Pod) -> list[dict[str, Any]]:
    """Return what each container requests and may use, and how it failed.

    Missing amounts are left out. A missing request is its limit, as the API server fills it in.
    """
    statuses = {status.name: status for status in pod.status.container_statuses or ()}
    killed = {
        status.name
        for status in pod.status.container_statuses or ()
        for state in (status.state, status.last_state)
        if state and state.terminated and state.terminated.reason == OOM_KILLED
    }
    rows = []
    for container in pod.spec.containers or ():
        sides = container.resources
        capped = (sides and sides.limits) or {}
        requested_amounts = {**capped, **((sides and sides.requests) or {})}
        amounts = {
            "cpu_milli": parse_milli(_parse_amount(requested_amounts, "cpu")),
            "memory_bytes": parse_whole(_parse_amount(requested_amounts, "memory")),
            "cpu_limit_milli": parse_milli(_parse_amount(capped, "cpu")),
            "memory_limit_bytes": parse_whole(_parse_amount(capped, "memory")),
        }
        rows.append(
            {
                "name": container.name,
                **{key: value for key, value in amounts.items() if value is not None},
                **(
                    {"gpu": True}
                    if any(find_gpu_resource(name) for name in requested_amounts)
                    else {}
                ),
                **({"oom_killed": True} if container.name in killed else {}),
                **_describe_failure(statuses.get(container.name)),
            }
        )
    return rows


def _describe_failure(status: ContainerStatus | None) -> dict[str, Any]:
    """Return the restarts of a container, its last exit with an error, and why it waits."""
    if status is None:
        return {}
    states = [state for state in (status.state, status.last_state) if state]
    exits = [s.terminated for s in states if s.terminated and s.terminated.exit_code]
    described: dict[str, Any] = {"restarts": status.restart_count} if status.restart_count else {}
    if exits:
        last = exits[0]
        values = {
            "code": last.exit_code,
            "reason": last.reason,
            "message": redact(last.message)[:LONGEST_MESSAGE] if last.message else None,
            "started_at": last.started_at,
            "finished_at": last.finished_at,
        }
        described["last_exit"] = {k: v for k, v in values.items() if v is not None}
    if status.state and status.state.waiting and status.state.waiting.reason:
        described["waiting"] = status.state.waiting.reason
    return described


def _parse_amount(annotation_map: Mapping[str, str | int], resource: str) -> Fraction | None:
    return parse_quantity(annotation_map[resource]) if resource in annotation_map else None


def build_devices_document(devices: Iterable[PodDevice]) -> str | None:
    """Return `pod.devices` as JSON."""
    return document([msgspec.structs.replace(device, gpus=None) for device in devices])


def _build_gpu_columns(
    pod: Pod, requested_amounts: Amounts, devices: Sequence[PodDevice], context: PodContext
) -> dict[str, Any]:
    device_counts = select_gpus(requested_amounts)
    if not device_counts:
        return _drop_resource(pod, devices)
    main = max(device_counts, key=lambda r: device_counts[r])
    part = context.parts.get(pod.spec.node_name or "", Fraction(1))
    vgpus = sum(device_counts.values(), Fraction(0))
    sharers = [
        (sum(counts.values(), Fraction(0)), amounts)
        for amounts in list_running_requests(pod.spec)
        if (counts := select_gpus(amounts))
    ]
    memory, percent, cores = (
        _average_hint(sharers, requested_amounts, form)
        for form in ("memory_mib", "memory_pct", "cores_pct")
    )
    parts = [p / _PERCENT for p in (percent, cores) if p is not None]
    amount = sum(
        (n * r.share * (part if r.may_be_divided else 1) for r, n in device_counts.items()),
        Fraction(0),
    )
    return {
        "gpu_resource": main.name,
        "gpu_request": float(amount * min(max(parts, default=Fraction(1)), Fraction(1))),
        "gpu_mem_request_bytes": None if memory is None else parse_whole(memory * _MIB * vgpus),
        "gpu_core_request_pct": None if cores is None else float(cores),
    }


def _average_hint(
    sharers: Sequence[tuple[Fraction, Amounts]], requested_amounts: Amounts, form: str
) -> Fraction | None:
    """Return the request per shared device, over containers: how many devices, and their requests.

    A container without it has whole devices; of their memory nothing is known.
    """
    hints = [(count, read_hint(amounts, form)) for count, amounts in sharers]
    if len(hints) < _SEVERAL or all(hint is None for _, hint in hints):
        return read_hint(requested_amounts, form)
    whole = None if form == "memory_mib" else Fraction(_PERCENT)
    each = [(count, whole if hint is None else hint) for count, hint in hints]
    if any(hint is None for _, hint in each):
        return None
    total = sum((count for count, _ in each), Fraction(0))
    return sum((count * (hint or 0) for count, hint in each), Fraction(0)) / total


def _drop_resource(pod: Pod, devices: Sequence[PodDevice]) -> dict[str, Any]:
    """Read the request of a pod without a GPU resource: KAI's annotations, DRA devices, or none."""
    annotation_map = pod.metadata.annotations or {}
    amounts = {
        key: parse_quantity(annotation_map[key])
        if _is_sound(key, annotation_map[key][: LONGEST + 1])
        else None
        for key in KAI_KEYS
        if key in annotation_map
    }
    count = amounts.get(KAI_DEVICES, Fraction(1)) or Fraction(1)
    fraction, memory = amounts.get(KAI_FRACTION), amounts.get(KAI_MEMORY)
    # The default scheduler gives no fraction: without KAI's the annotation is only a text.
    if (KAI_FRACTION in amounts or KAI_MEMORY in amounts) and pod.spec.scheduler_name != DEFAULT:
        return {
            "gpu_resource": "nvidia.com/gpu",
            "gpu_request": None if fraction is None else float(fraction * count),
            "gpu_mem_request_bytes": None if memory is None else parse_whole(memory * _MIB * count),
        }
    if devices:
        return {
            "gpu_resource": f"claim/{devices[0].source}",
            "gpu_request": sum(d.share or 1.0 if d.gpus is None else d.gpus for d in devices),
        }
    # A claim whose devices are not known may be one of GPUs.
    return {"gpu_request": None if pod.spec.resource_claims else 0.0}


def _describe_unscheduled(pod: Pod) -> dict[str, Any]:
    """Return the scheduler's condition of a pod without a node; empty = it has none."""
    for condition in pod.status.conditions or ():
        if condition.type == "PodScheduled" and condition.status == "False":
            values = {
                "reason": condition.reason,
                "message": redact(condition.message)[:LONGEST_MESSAGE]
                if condition.message
                else None,
                "since": condition.last_transition_time,
            }
            return {name: value for name, value in values.items() if value is not None}
    return {}


def _find_team(meta: Meta, context: PodContext) -> str | None:
    for label_set in (meta.labels or {}, context.namespaces.get(meta.namespace) or {}):
        for label in context.team_labels:
            if label_set.get(label):
                return label_set[label]
    return None


def _find_end(pod: Pod) -> datetime | None:
    """Return when an ended pod let its devices go.

    A pod that its node refused, or that was evicted before a container ran, has no container that
    ended: the last change of its conditions, or its start, is the last sign that it held any.
    """
    status = pod.status
    if status.phase not in ENDED:
        return None
    states = [c.state.terminated for c in status.container_statuses or () if c.state]
    ends = [s.finished_at for s in states if s and s.finished_at]
    signs = [c.last_transition_time for c in status.conditions or ()]
    signs += [status.start_time or pod.metadata.creation_timestamp]
    return max(ends or filter(None, signs), default=None)


@cache
def _list_prefixes() -> tuple[str, ...]:
    return tuple(row["prefix"] for row in parse_table("pod_annotations"))


def _select_annotations(
    pod: Pod, top: TopOwner | None, space: Mapping[str, str] | None
) -> dict[str, Any]:
    annotation_map = pod.metadata.annotations or {}
    prefixes = _list_prefixes()
    kept_values: dict[str, Any] = {
        k: v for k, v in annotation_map.items() if k.startswith(prefixes)
    }
    # Of other keys in our domain only the key is kept: it may be a protection with a typing error.
    kept_values |= {k: "" for k in annotation_map if k.startswith(OWN_DOMAIN)}
    kept_values |= select_protections(annotation_map)
    kept_values.pop(UNREADABLE, None)
    if top is not None and top.protections:
        kept_values[OWNERS] = dict(top.protections)
    if space:
        kept_values[NAMESPACE] = dict(space)
    return kept_values | _describe_volumes(pod) | _describe_placement(pod)


def _describe_queued(at: datetime | None) -> dict[str, str]:
    """Return when the pod's workload began to wait, as Fallow's own annotation."""
    return {} if at is None else {QUEUED: at.isoformat()}


def _describe_volumes(pod: Pod) -> dict[str, Any]:
    """Return the pod's claims and the volumes on its node, as Fallow's own annotations."""
    volumes = pod.spec.volumes or ()
    claims = [v.persistent_volume_claim.claim_name for v in volumes if v.persistent_volume_claim]
    local = [v.name for v in volumes if v.host_path or (v.empty_dir and not v.empty_dir.medium)]
    named = {CLAIMS: sorted(claims), LOCAL_VOLUMES: sorted(local)}
    return {key: names for key, names in named.items() if names}


def _describe_placement(pod: Pod) -> dict[str, Any]:
    """Return what the pod requires of its node, as Fallow's own annotations."""
    tolerations = [
        [t.key or "", t.operator or "Equal", t.value or "", t.effect or ""]
        for t in pod.spec.tolerations or ()
        if t.key not in _EVERYWHERE
    ]
    described = {
        SELECTOR: read_node_selector(pod),
        AFFINITY: read_node_affinity(pod),
        TOLERATIONS: tolerations,
        NEVER_PREEMPTS: pod.spec.preemption_policy == "Never",
    }
    return {key: value for key, value in described.items() if value}


def read_node_selector(pod: Pod) -> dict[str, list[str]]:
    """Return the labels that a pod's node must have, each with its legal values.

    If a required node affinity has several alternatives, only labels that all of them require
    count. Only the operator `In` is read: `node_affinity` has what this leaves out.
    """
    selector = {key: {value} for key, value in (pod.spec.node_selector or {}).items()}
    each = [
        {e.key: set(e.values or ()) for e in t.match_expressions or () if e.operator == "In"}
        for t in _list_terms(pod)
    ]
    for key in set.intersection(*map(set, each)) if each else ():
        legal = set.union(*(term[key] for term in each))
        selector[key] = selector[key] & legal if key in selector else legal
    return {key: sorted(values) for key, values in sorted(selector.items())}


def read_node_affinity(pod: Pod) -> list[list[tuple[str, str, list[str]]]]:
    """Return the alternatives of the required node affinity that `node_selector` cannot express.

    An alternative without expressions matches no node; one that names a node by its fields is left
    open, and then the others rule out nothing.
    """
    terms = [t for t in _list_terms(pod) if t.match_expressions or t.match_fields]
    if any(not term.match_expressions for term in terms):
        return []
    alternatives = [
        [(e.key, e.operator, list(e.values or ())) for e in term.match_expressions or ()]
        for term in terms
    ]
    return [] if _is_selector(alternatives) else alternatives


def _list_terms(pod: Pod) -> tuple[Term, ...]:
    affinity = pod.spec.affinity.node_affinity if pod.spec.affinity else None
    required = affinity.required if affinity else None
    return (required.node_selector_terms if required else None) or ()


def _is_selector(alternatives: Sequence[Sequence[tuple[str, str, Sequence[str]]]]) -> bool:
    """Return whether legal values of labels say the same: one alternative, or one label in all."""
    keys = [[key for key, _, _ in alternative] for alternative in alternatives]
    one_label = len({key for names in keys for key in names}) <= 1
    return all(operator == "In" for terms in alternatives for _, operator, _ in terms) and all(
        len(names) == len(set(names)) and (one_label or len(keys) == 1) for names in keys
    )
