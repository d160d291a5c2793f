"""Resolve the pods of telemetry to the top owner in the API, by uid.

A source may name pods without a uid, or owners without one. Another object may have the same name
by now. A pod of the API is the pod of the evidence only where that is certain: by the uid where the
evidence has it, else by the name, the node, and a start before the idle stretch began. Otherwise
the identity stays unknown with a reason, and no action follows.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from msgspec.structs import replace

from actions.cluster.owner_chains import OwnerChainReader
from actions.cluster.workload_pods import count_requested_gpus
from actions.recommend import recommend
from fallow.action_models import Facts, PodRef
from fallow.errors import FallowError
from fallow.kube.objects import (
    Object,
    find_controller,
    format_object,
    get_annotations,
    get_labels,
    get_metadata,
    get_path,
    get_uid,
    group,
    has_condition,
    has_ended,
    is_deleting,
    name,
    to_target,
)
from fallow.kube.owner_chains import UnknownOwner
from fallow.kube.owner_links import get_row_kind
from fallow.models import UNRESOLVED
from fallow.protocols import ClusterReader

BUCKET = timedelta(minutes=5)
"""Rollups have buckets of five minutes: a stretch may seem to begin this long before its pod."""


class _UnknownIdentity(Exception):  # noqa: N818  (an answer, not a failure)
    """Why the identity of a case is unknown."""


def is_unresolved(facts: Facts) -> bool:
    """Return whether stored rows leave the object of a case unknown."""
    workload = bool(facts.finding.subject.namespace)
    return workload and (not facts.uid or facts.owner_resolved is not True)


def mark_unidentified(facts: Iterable[Facts], why: str) -> list[Facts]:
    """Return facts in which each unresolved case carries the reason."""
    return [replace(f, unidentified=why) if is_unresolved(f) else f for f in facts]


def identify(facts: Sequence[Facts], cluster: ClusterReader) -> list[Facts]:
    """Return facts with the uid, generation and owner that the API shows for certain.

    A case whose pods are not in the inventory gets the kind and the name of their top owner. If
    the API does not answer, or forbids the read, the case stays unknown with that reason.
    """
    results, reader = [], _Reader(cluster)
    for case in facts:
        if not is_unresolved(case):
            results.append(case)
            continue
        try:
            results.append(_identify(case, reader))
        except _UnknownIdentity as unknown:
            results.append(replace(case, unidentified=str(unknown)))
        except FallowError as error:
            text = f"the Kubernetes API does not tell: {error.message}"
            results.append(replace(case, unidentified=text))
    return results


class _Reader:
    """Reads each namespace's pods once."""

    def __init__(self, cluster: ClusterReader) -> None:
        self.cluster = cluster
        self.climber = OwnerChainReader(cluster)
        self._pods: dict[str, dict[str, Object]] = {}

    def pods(self, namespace: str) -> Mapping[str, Object]:
        if namespace not in self._pods:
            path = self.cluster.collection("Pod", "", namespace)
            items = self.cluster.items(path) if path else ()
            items_with_kind = [{"apiVersion": "v1", "kind": "Pod", **item} for item in items]
            self._pods[namespace] = {name(pod): pod for pod in items_with_kind}
        return self._pods[namespace]


def _identify(facts: Facts, reader: _Reader) -> Facts:
    subject = facts.finding.subject
    if subject.cluster != reader.cluster.name:
        raise _UnknownIdentity(
            f"it is of cluster {subject.cluster}, the API of {reader.cluster.name}"
        )
    if not facts.pods:
        raise _UnknownIdentity("no pod of it is known to hold a device")
    pods = reader.pods(subject.namespace)
    case_pods = [_check_pod(ref, pods.get(ref.pod), facts) for ref in facts.pods]
    top = _find_top(case_pods, reader)
    kind = get_row_kind(group(str(top.get("apiVersion") or "")), str(top.get("kind")))
    named_in_rows = (subject.workload_kind, subject.workload)
    if named_in_rows not in {(kind, name(top)), *_list_unresolved(case_pods)}:
        raise _UnknownIdentity(
            f"rows call it {'/'.join(named_in_rows)}, the API shows {format_object(top)}"
        )
    _check_all_pods(top, case_pods, reader, all_pods=subject.workload_kind == UNRESOLVED)
    finding = replace(
        facts.finding, subject=replace(subject, workload_kind=kind, workload=name(top))
    )
    advice = recommend(finding)
    created_times = [_parse_time(get_metadata(pod).get("creationTimestamp")) for pod in case_pods]
    return replace(
        facts,
        finding=finding,
        recommendation=advice[0] if advice else facts.recommendation,
        pods=tuple(PodRef(name(pod), get_uid(pod), _get_node(pod)) for pod in case_pods),
        uid=get_uid(top),
        generation=get_metadata(top).get("generation"),
        owner_resolved=True,
        labels=facts.labels or _intersect_common(case_pods),
        annotations={**_merge_all([*case_pods, top]), **facts.annotations},
        priority_class=facts.priority_class or get_path(case_pods[0], "spec", "priorityClassName"),
        created_at=facts.created_at or max((b for b in created_times if b), default=None),
        nodes_ready=_is_ready(case_pods, reader.cluster)
        if facts.nodes_ready is None
        else facts.nodes_ready,
        skew_s=_compute_ahead(created_times, facts.at) if facts.skew_s is None else facts.skew_s,
        unidentified="",
    )


def _check_pod(ref: PodRef, pod: Object | None, facts: Facts) -> Object:
    """Return the pod of the API if it is the pod of the evidence."""
    if pod is None:
        raise _UnknownIdentity(f"pod {ref.pod} is not there any more")
    if ref.uid:
        if ref.uid != get_uid(pod):
            raise _UnknownIdentity(f"pod {ref.pod} was made anew: its uid is another by now")
        return pod
    started_at = _parse_time(
        get_path(pod, "status", "startTime") or get_metadata(pod).get("creationTimestamp")
    )
    since = facts.finding.window.start
    if started_at is None:
        raise _UnknownIdentity(f"when pod {ref.pod} started is unknown")
    if started_at > since + BUCKET:
        raise _UnknownIdentity(
            f"pod {ref.pod} started at {started_at:%F %R} UTC, after its idle stretch began "
            f"({since:%F %R}): the pod before it had its name"
        )
    if not ref.node or ref.node != _get_node(pod):
        raise _UnknownIdentity(
            f"pod {ref.pod} is on node {_get_node(pod) or '?'}, its devices on {ref.node or '?'}"
        )
    if is_deleting(pod) or has_ended(pod):
        raise _UnknownIdentity(f"pod {ref.pod} is over")
    return pod


def _find_top(pods: Sequence[Object], reader: _Reader) -> Object:
    tops: dict[str, Object] = {}
    for pod in pods:
        chain = reader.climber.chain(pod)
        if isinstance(chain, UnknownOwner):
            raise _UnknownIdentity(chain.reason)
        tops[get_uid(chain[-1])] = chain[-1]
    if len(tops) != 1:
        raise _UnknownIdentity(f"its pods have {len(tops)} owners")
    return next(iter(tops.values()))


def _check_all_pods(
    top: Object, case_pods: Sequence[Object], reader: _Reader, *, all_pods: bool
) -> None:
    """Raise where a bound pod of the workload is not in the evidence.

    An inventory that judged the workload also judged its pods without devices. Without an inventory
    (`all_pods`), nothing shows what these pods do.
    """
    uids = {get_uid(pod) for pod in case_pods}
    bound = [
        p
        for p in reader.cluster.pods(to_target(top, reader.cluster.name))
        if _get_node(p)
        and not has_ended(p)
        and (all_pods or count_requested_gpus(p) or get_path(p, "spec", "resourceClaims"))
    ]
    unseen = sorted(name(p) for p in bound if get_uid(p) not in uids)
    if unseen:
        raise _UnknownIdentity(
            f"{len(unseen)} of {len(bound)} pods of {format_object(top)} are not of this case: "
            f"{', '.join(unseen[:3])}"
        )


def _list_unresolved(pods: Iterable[Object]) -> Iterator[tuple[str, str]]:
    """Yield the names that rows use for pods whose top owner they do not know."""
    for pod in pods:
        yield UNRESOLVED, name(pod)
        owner = find_controller(pod)
        if owner is not None:
            yield UNRESOLVED, str(owner.get("name"))


def _get_node(pod: Object) -> str:
    return str(get_path(pod, "spec", "nodeName") or "")


def _is_ready(pods: Sequence[Object], cluster: ClusterReader) -> bool | None:
    path = cluster.collection("Node", "")
    nodes = [cluster.get(f"{path}/{_get_node(pod)}") if path else None for pod in pods]
    return None if None in nodes else all(has_condition(node, "Ready") for node in nodes if node)


def _compute_ahead(created_times: Sequence[datetime | None], now: datetime) -> float:
    """Return a lower bound of the seconds by which the API's clock is ahead of ours."""
    return max(
        0.0, *((created - now).total_seconds() for created in created_times if created is not None)
    )


def _intersect_common(pods: Sequence[Object]) -> dict[str, str]:
    first, *others = [get_labels(pod) for pod in pods]
    return {k: str(v) for k, v in first.items() if all(o.get(k) == v for o in others)}


def _merge_all(objects: Sequence[Object]) -> dict[str, str]:
    """Return the annotations of any of the objects: a protection of one protects all."""
    return {k: str(v) for obj in objects for k, v in get_annotations(obj).items() if "/" in k}


def _parse_time(text: Any) -> datetime | None:
    try:
        timestamp = datetime.fromisoformat(str(text))
    except ValueError:
        return None
    return timestamp.replace(tzinfo=UTC) if timestamp.tzinfo is None else timestamp
