"""Who it is that the evidence saw: pods of telemetry to the top owner that the API shows, by uid.

A source may name pods without a uid, or owners without one. Then a name may be somebody else's by
now. A pod of the API is the one that the evidence saw only where that is certain: by the uid where
the evidence has it, else by the name, the node, and a start before the idle stretch began. What is
not certain stays unknown, says why, and is never acted upon.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from msgspec.structs import replace

from actions.cluster.climbing import Climber
from actions.cluster.climbing import Unknown as NoOwner
from actions.cluster.members import gpus
from actions.cluster.objects import (
    Object,
    annotations,
    deep,
    ended,
    going,
    group,
    holds,
    labels,
    meta,
    name,
    shown,
    target,
    uid,
)
from actions.recommend import recommend
from fallow.acting import Facts, PodRef
from fallow.errors import FallowError
from fallow.kube.owner_jumps import called
from fallow.seams import Cluster

BUCKET = timedelta(minutes=5)
"""Rollups tell of five minutes at a time: a stretch may seem to begin so much before its pod."""


class _Unknown(Exception):  # noqa: N818  (an answer, not a failure)
    """Why it cannot be said who it is."""


def unresolved(facts: Facts) -> bool:
    """Say whether stored rows do not tell which object a case is about."""
    workload = bool(facts.finding.subject.namespace)
    return workload and (not facts.uid or facts.owner_resolved is not True)


def unidentified(facts: Iterable[Facts], why: str) -> list[Facts]:
    """Return facts in which each case that is not resolved says why."""
    return [replace(f, unidentified=why) if unresolved(f) else f for f in facts]


def identified(facts: Sequence[Facts], cluster: Cluster) -> list[Facts]:
    """Return facts with uid, generation and owner of what the API shows for certain.

    A case whose pods the inventory does not know takes the kind and the name of their top owner.
    An API that is away, or that forbids to read, leaves a case unknown with that as its reason.
    """
    made, reader = [], _Reader(cluster)
    for one in facts:
        if not unresolved(one):
            made.append(one)
            continue
        try:
            made.append(_identified(one, reader))
        except _Unknown as unknown:
            made.append(replace(one, unidentified=str(unknown)))
        except FallowError as error:
            said = f"the Kubernetes API does not tell: {error.message}"
            made.append(replace(one, unidentified=said))
    return made


class _Reader:
    """Reads each namespace's pods once."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.climber = Climber(cluster)
        self._pods: dict[str, dict[str, Object]] = {}

    def pods(self, namespace: str) -> Mapping[str, Object]:
        if namespace not in self._pods:
            path = self.cluster.collection("Pod", "", namespace)
            items = self.cluster.items(path) if path else ()
            found = [{"apiVersion": "v1", "kind": "Pod", **item} for item in items]
            self._pods[namespace] = {name(pod): pod for pod in found}
        return self._pods[namespace]


def _identified(facts: Facts, reader: _Reader) -> Facts:
    subject = facts.finding.subject
    if subject.cluster != reader.cluster.name:
        raise _Unknown(f"it is of cluster {subject.cluster}, the API of {reader.cluster.name}")
    if not facts.pods:
        raise _Unknown("no pod of it is known to hold a device")
    there = reader.pods(subject.namespace)
    mine = [_certain(ref, there.get(ref.pod), facts) for ref in facts.pods]
    top = _top(mine, reader)
    kind = called(group(str(top.get("apiVersion") or "")), str(top.get("kind")))
    known = (subject.workload_kind, subject.workload)
    if known not in {(kind, name(top)), *(("Pod", name(pod)) for pod in mine)}:
        raise _Unknown(f"rows call it {'/'.join(known)}, the API shows {shown(top)}")
    _whole(top, mine, reader, every=subject.workload_kind == "Pod")
    finding = replace(
        facts.finding, subject=replace(subject, workload_kind=kind, workload=name(top))
    )
    advice = recommend(finding)
    born = [_moment(meta(pod).get("creationTimestamp")) for pod in mine]
    return replace(
        facts,
        finding=finding,
        recommendation=advice[0] if advice else facts.recommendation,
        pods=tuple(PodRef(name(pod), uid(pod), _node(pod)) for pod in mine),
        uid=uid(top),
        generation=meta(top).get("generation"),
        owner_resolved=True,
        labels=facts.labels or _common(mine),
        annotations={**_all([*mine, top]), **facts.annotations},
        priority_class=facts.priority_class or deep(mine[0], "spec", "priorityClassName"),
        created_at=facts.created_at or max((b for b in born if b), default=None),
        nodes_ready=_ready(mine, reader.cluster)
        if facts.nodes_ready is None
        else facts.nodes_ready,
        skew_s=_ahead(born, facts.at) if facts.skew_s is None else facts.skew_s,
        unidentified="",
    )


def _certain(ref: PodRef, pod: Object | None, facts: Facts) -> Object:
    """Return the pod of the API where it is the one that the evidence saw."""
    if pod is None:
        raise _Unknown(f"pod {ref.pod} is not there any more")
    if ref.uid:
        if ref.uid != uid(pod):
            raise _Unknown(f"pod {ref.pod} was made anew: its uid is another by now")
        return pod
    begun = _moment(deep(pod, "status", "startTime") or meta(pod).get("creationTimestamp"))
    since = facts.finding.window.start
    if begun is None:
        raise _Unknown(f"when pod {ref.pod} started is unknown")
    if begun > since + BUCKET:
        raise _Unknown(
            f"pod {ref.pod} started at {begun:%F %R} UTC, after its idle stretch began "
            f"({since:%F %R}): the pod before it had its name"
        )
    if not ref.node or ref.node != _node(pod):
        raise _Unknown(
            f"pod {ref.pod} is on node {_node(pod) or '?'}, its devices on {ref.node or '?'}"
        )
    if going(pod) or ended(pod):
        raise _Unknown(f"pod {ref.pod} is over")
    return pod


def _top(pods: Sequence[Object], reader: _Reader) -> Object:
    tops: dict[str, Object] = {}
    for pod in pods:
        chain = reader.climber.chain(pod)
        if isinstance(chain, NoOwner):
            raise _Unknown(chain.reason)
        tops[uid(chain[-1])] = chain[-1]
    if len(tops) != 1:
        raise _Unknown(f"its pods have {len(tops)} owners")
    return next(iter(tops.values()))


def _whole(top: Object, mine: Sequence[Object], reader: _Reader, *, every: bool) -> None:
    """Raise where a pod of the workload is bound that the evidence is not about.

    Where an inventory judged the workload, those without devices were judged with it; where there
    is none (`every`), nobody saw what they do.
    """
    seen = {uid(pod) for pod in mine}
    bound = [
        p
        for p in reader.cluster.pods(target(top, reader.cluster.name))
        if _node(p) and not ended(p) and (every or gpus(p) or deep(p, "spec", "resourceClaims"))
    ]
    unseen = sorted(name(p) for p in bound if uid(p) not in seen)
    if unseen:
        raise _Unknown(
            f"{len(unseen)} of {len(bound)} pods of {shown(top)} are not of this case: "
            f"{', '.join(unseen[:3])}"
        )


def _node(pod: Object) -> str:
    return str(deep(pod, "spec", "nodeName") or "")


def _ready(pods: Sequence[Object], cluster: Cluster) -> bool | None:
    path = cluster.collection("Node", "")
    nodes = [cluster.get(f"{path}/{_node(pod)}") if path else None for pod in pods]
    return None if None in nodes else all(holds(node, "Ready") for node in nodes if node)


def _ahead(born: Sequence[datetime | None], now: datetime) -> float:
    """Return by how many seconds the API's clock is seen to be ahead of ours, at least."""
    return max(0.0, *((b - now).total_seconds() for b in born if b is not None))


def _common(pods: Sequence[Object]) -> dict[str, str]:
    first, *others = [labels(pod) for pod in pods]
    return {k: str(v) for k, v in first.items() if all(o.get(k) == v for o in others)}


def _all(objects: Sequence[Object]) -> dict[str, str]:
    """Return the annotations of any of them: what one forbids is forbidden for all."""
    return {k: str(v) for obj in objects for k, v in annotations(obj).items() if "/" in k}


def _moment(text: Any) -> datetime | None:
    try:
        found = datetime.fromisoformat(str(text))
    except ValueError:
        return None
    return found.replace(tzinfo=UTC) if found.tzinfo is None else found
