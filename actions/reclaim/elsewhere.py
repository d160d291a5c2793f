"""Restart a job with nodes excluded: its own restart, and another affinity of its pods.

The affinity is written together with the start, while the job is suspended: then it may change. It
excludes the nodes by their host names, beside what the owner requires, and stays until Fallow
resumes the job later and the nodes are other ones (`analyzers/suspended`): the resume gives back
what was there before. The undo of a restart that still stops pods starts the
job as it was. What a kind cannot do is in `excluded_nodes.csv`.
"""

import copy
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, ClassVar

import msgspec

from actions.cluster.pointers import (
    build_merge_patch,
    find_highest_absent,
    get_value,
    resolve_pointer,
)
from actions.reclaim import kueue
from actions.reclaim.kinds import read_kinds
from actions.reclaim.restarts import LOST, RestartExecutor
from actions.reclaim.subjects import POD_RIGHTS, LiveWorkload, build_rights, read_workload
from actions.reclaim.writes import merge_bodies
from actions.recommend import ELSEWHERE, list_restartable_kinds
from capacity.queue.exclusions import EXCLUDED
from fallow.action_models import Change, Decision, Intent
from fallow.errors import RefusedError
from fallow.kube.objects import get_labels
from fallow.protocols import ClusterReader, Right
from fallow.resources import read_table

HOSTNAME = "kubernetes.io/hostname"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


class TemplatePaths(msgspec.Struct, frozen=True):
    """Where a kind has its pod templates below `spec`, or why they cannot change."""

    kind: str
    templates: tuple[str, ...]
    """`*` is every key of a map, or every item of a list."""
    why_not: str


@cache
def read_template_paths() -> Mapping[str, TemplatePaths]:
    """Return where each kind that can be restarted has its pod templates."""
    return {
        row["kind"]: TemplatePaths(row["kind"], tuple(row["templates"].split()), row["why_not"])
        for row in read_table("actions.reclaim", "excluded_nodes.csv")
    }


def list_movable_kinds() -> tuple[str, ...]:
    """Return the kinds whose pods can be kept away from nodes."""
    return tuple(kind for kind, paths in read_template_paths().items() if not paths.why_not)


class RestartElsewhereExecutor:
    """Suspend a job, and resume it away from the nodes of its incident."""

    kinds: ClassVar[frozenset[str]] = list_restartable_kinds()
    capabilities: ClassVar[frozenset[str]] = frozenset({ELSEWHERE})
    verbs: ClassVar[frozenset[str]] = frozenset({ELSEWHERE})
    rights: ClassVar[tuple[Right, ...]] = (
        *build_rights(*list_movable_kinds()),
        *POD_RIGHTS,
        # Read only: what Kueue manages is refused.
        Right(kueue.GROUP, "workloads", ("get", "list")),
        Right("", "nodes", ("get",)),
    )

    def writes(self, decision: Decision, cluster: ClusterReader) -> Intent:
        """Return the stop and the start with the nodes excluded; the undo is the start alone.

        Raises:
            RefusedError: its kind cannot do this, Kueue manages it, a node is not known, or what
                refuses a restart.
            TemporaryError: the API does not answer.
        """
        # Refused before the object is read: the role has no rights for these kinds.
        kind = read_kinds()[decision.subject[1]].kind
        paths = read_template_paths()[kind]
        if paths.why_not:
            raise RefusedError(
                f"restart elsewhere cannot be done for {kind}: {paths.why_not}",
                hint="cordon the node first: a restart leaves it then",
            )
        workload = read_workload(decision, cluster)
        if kueue.is_managed(workload.obj, cluster):
            raise RefusedError(
                f"restart elsewhere cannot be done for {kind} under Kueue: its "
                "Workload has the pods as they were admitted"
            )
        hosts = _read_hosts(decision, cluster)
        intent = RestartExecutor().writes(decision, cluster)
        stop, start = intent.changes
        for pointer, value in _list_affinities(workload, paths, hosts):
            start = _join_field(start, workload, pointer, value)
        lost = f"{LOST}; its template excludes {', '.join(hosts)} until its owner changes it"
        return msgspec.structs.replace(
            intent, capability=ELSEWHERE, changes=(stop, start), lost=lost
        )


def exclude_hosts(affinity: Mapping[str, Any] | None, hosts: Sequence[str]) -> dict[str, Any]:
    """Return an affinity that also keeps pods away from hosts.

    Alternatives are ORed, so each of them gets the expression.
    """
    joined: dict[str, Any] = copy.deepcopy(dict(affinity or {}))
    node = joined.setdefault("nodeAffinity", {})
    terms = node.setdefault(REQUIRED, {}).setdefault("nodeSelectorTerms", [])
    expression = {"key": HOSTNAME, "operator": "NotIn", "values": list(hosts)}
    if not terms:
        terms.append({})
    for term in terms:
        expressions = term.setdefault("matchExpressions", [])
        if expression not in expressions:
            expressions.append(copy.deepcopy(expression))
    return joined


def _read_hosts(decision: Decision, cluster: ClusterReader) -> list[str]:
    """Return the host names of the nodes to exclude, as the nodes' labels have them."""
    names = decision.parameters.get(EXCLUDED)
    if not isinstance(names, list) or not names:
        raise RefusedError("no incident names a node that it should leave")
    path = cluster.collection("Node", "", "")
    hosts = []
    for name in names:
        node = cluster.get(f"{path}/{name}")
        host = None if node is None else get_labels(node).get(HOSTNAME)
        if not host:
            why = "is gone: a plain restart leaves it" if node is None else f"has no {HOSTNAME}"
            raise RefusedError(f"node {name} {why}")
        hosts.append(host)
    return hosts


def _list_affinities(
    workload: LiveWorkload, paths: TemplatePaths, hosts: Sequence[str]
) -> Iterator[tuple[str, Any]]:
    """Yield fields and their values with the hosts excluded; a list is one field as a whole."""
    spec = workload.obj.get("spec") or {}
    found_one = False
    for path in paths.templates:
        before, _, after = path.partition("/*/")
        holder = get_value(spec, f"/{before}")
        if not after:
            if isinstance(holder, dict):
                found_one = True
                value = exclude_hosts(get_value(holder, "/spec/affinity"), hosts)
                yield f"/spec/{before}/spec/affinity", value
        elif isinstance(holder, dict):
            for key, item in sorted(holder.items()):
                found_one = True
                value = exclude_hosts(get_value(item, f"/{after}/spec/affinity"), hosts)
                yield f"/spec/{before}/{key}/{after}/spec/affinity", value
        elif isinstance(holder, list) and holder:
            found_one = True
            yield f"/spec/{before}", _exclude_in_list(holder, after, hosts)
    if not found_one:
        raise RefusedError(f"{workload} has no pod template: nothing of it could be kept away")


def _exclude_in_list(items: Iterable[Any], path: str, hosts: Sequence[str]) -> list[Any]:
    """Return a list with the hosts excluded in each item: a merge patch replaces it whole."""
    changed = copy.deepcopy(list(items))
    for item in changed:
        pod = item.setdefault(path, {}).setdefault("spec", {})
        pod["affinity"] = exclude_hosts(pod.get("affinity"), hosts)
    return changed


def _join_field(start: Change, workload: LiveWorkload, pointer: str, value: Any) -> Change:
    """Return a start that also sets a field of the job."""
    body = build_merge_patch(pointer, value)
    absent = find_highest_absent(workload.obj, pointer)
    return msgspec.structs.replace(
        start,
        body=merge_bodies(start.body, body),
        was={**start.was, absent: get_value(workload.obj, absent)},
        becomes={**start.becomes, absent: resolve_pointer(body, absent)},
    )
