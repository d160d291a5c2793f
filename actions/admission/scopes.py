"""Read from policies which writes they need, and on which objects.

A scope names writes of one role, and the objects on which one policy allows them. Admission sees
the request, the object and its namespace. It does not see what only Fallow knows: evidence, owner,
queue, GPU model, budgets. A scope is therefore wider than its policy, never narrower.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from actions.policy.matching import is_any_match
from actions.policy.model import Policy
from actions.reclaim.evicting import RESTORE, RESTORE_RIGHTS
from actions.reclaim.kinds import read_kinds
from actions.reclaim.subjects import get_plural
from actions.rights import CANARY, OWN, annotate_rights, list_roles
from actions.snapshots.snapshotter import RIGHTS as SNAPSHOT
from fallow.action_models import Action, Change
from fallow.protocols import Executor, Right
from fallow.resources import read_table
from fallow.settings.actions import ActionsSettings

CREATE, UPDATE, CONNECT = "CREATE", "UPDATE", "CONNECT"
_OPERATIONS = {"create": CREATE, "patch": UPDATE}
_EXEC = "pods/exec"
OWN_ROLE, CANARY_ROLE = "fallow-own", "fallow-canary"
_PATH = re.compile(
    r"^/(?:api|apis/(?P<group>[^/]+))/[^/]+(?:/namespaces/(?P<namespace>[^/]+))?"
    r"/(?P<resource>[a-z]+)(?:/(?P<name>[^/]+))?(?:/(?P<part>[a-z]+))?$"
)


class Write(msgspec.Struct, frozen=True, order=True):
    """One kind of request that changes something."""

    group: str
    resource: str
    """With its subresource: `deployments/scale`."""
    operation: str


class Scope(msgspec.Struct, frozen=True):
    """Writes, and the objects on which they are allowed. Texts are globs."""

    source: str
    """File and line of the policy, or another reason."""
    writes: tuple[Write, ...]
    namespaces: tuple[str, ...] = ()
    match_namespaces: tuple[str, ...] = ()
    """A second list that must match too; empty = any."""
    not_namespaces: tuple[str, ...] = ()
    name: str = ""
    """The only name allowed; empty = any."""
    cluster_objects: bool = False
    namespace_labels: Mapping[str, tuple[str, ...]] = {}
    pod_labels: Mapping[str, tuple[str, ...]] = {}
    annotations_only: bool = False
    """Only changes of Fallow's own annotations."""
    events_only: bool = False
    """Only Events that Fallow wrote."""

    @property
    def resources(self) -> frozenset[tuple[str, str]]:
        """The group and resource of each write."""
        return frozenset((write.group, write.resource) for write in self.writes)


def list_writes(rights: Iterable[Right]) -> tuple[Write, ...]:
    """Return the requests that rights grant and that change something."""
    writes = {
        Write(right.group, right.resource, _OPERATIONS[verb])
        for right in rights
        for verb in right.verbs
        if verb in _OPERATIONS and right.resource != _EXEC
    }
    if any(right.resource == _EXEC for right in rights):
        writes.add(Write("", _EXEC, CONNECT))
    return tuple(sorted(writes))


def list_role_writes(executors: Mapping[str, Executor]) -> dict[str, tuple[Write, ...]]:
    """Return the writes of each role by its name; a role that only reads is left out."""
    every = {**list_roles(executors), OWN_ROLE: OWN, CANARY_ROLE: CANARY}
    written = {name: list_writes(rights) for name, rights in every.items()}
    return {name: writes for name, writes in written.items() if writes}


def read_scopes(
    policies: Iterable[Policy], executors: Mapping[str, Executor], cluster: str
) -> tuple[Scope, ...]:
    """Return what policies that enforce allow in a cluster."""
    return tuple(
        scope
        for policy in policies
        if policy.mode == "enforce"
        and policy.stage("act") is not None
        and (not policy.match.cluster or is_any_match(policy.match.cluster, cluster))
        and (policy.allow.namespaces or policy.allow.cluster_objects)
        for scope in _read_policy(policy, executors)
    )


def read_standing_scopes(actions: Iterable[Action]) -> tuple[Scope, ...]:
    """Return what the undo of actions that are in force writes, object by object."""
    return tuple(
        Scope(
            source=f"action {action.id}",
            writes=writes,
            namespaces=(re.sub(r"([*?[])", r"[\1]", namespace),) if namespace else (),
            name=name,
            cluster_objects=not namespace,
        )
        for action in actions
        for (namespace, name), writes in _group_undo(action).items()
    )


def read_own_scopes(settings: ActionsSettings) -> tuple[Scope, ...]:
    """Return what Fallow writes for itself: its Lease and switch, its Events, and its canary."""
    canary = settings.canary
    own = Scope("actions.lease.namespace", list_writes(OWN), (settings.lease.namespace,))
    events = Scope(
        "every action", (Write("", "events", CREATE),), namespaces=("*",), events_only=True
    )
    if not canary.image:
        return own, events
    writes = tuple(w for w in list_writes(CANARY) if w.resource != "events")
    return own, events, Scope("actions.canary", writes, (canary.namespace,), name=canary.name)


def read_label_pointers() -> dict[tuple[str, str], str]:
    """Return the field with the pods' labels by group and resource (`pod_labels.csv`).

    A request of another resource, such as `deployments/scale`, does not show them.
    """
    rows = read_table("actions.admission", "pod_labels.csv")
    return {(row["group"], row["resource"]): row["pointer"] for row in rows}


def _read_policy(policy: Policy, executors: Mapping[str, Executor]) -> Iterator[Scope]:
    act = policy.stage("act")
    words = set(act.do) if act is not None else set()
    subjects: set[str] = set()
    for executor in executors.values():
        if not words & {*executor.capabilities, *executor.verbs}:
            continue
        named = {kind for kind in executor.kinds if _is_kind_named(policy, kind)}
        if named:
            subjects |= named
            yield _build_scope(policy, _narrow_to_kinds(executor, named))
    if restored := _list_restoring(policy, subjects):
        yield _build_scope(policy, restored)
    if subjects and policy.stage("snapshot") is not None:
        yield _build_scope(policy, list_writes(SNAPSHOT))
    annotated = {(k.group, get_plural(n)) for n, k in read_kinds().items() if n in subjects}
    marks = [w for w in list_writes(annotate_rights()) if (w.group, w.resource) in annotated]
    if marks:
        yield _build_scope(policy, tuple(marks), annotations_only=True)


def _is_kind_named(policy: Policy, kind: str) -> bool:
    """Return whether the gates `match` and `kind` may let a kind of workload pass."""
    wanted, allowed = policy.match.workload_kind, policy.allow.kinds
    serves = kind in {row["workload_kind"] for row in read_table("actions.policy", "serving.csv")}
    return (not wanted or is_any_match(wanted, kind)) and (
        is_any_match(allowed, kind) if allowed else not serves
    )


def _narrow_to_kinds(executor: Executor, named: set[str]) -> tuple[Write, ...]:
    """Return an executor's writes without the workloads of kinds that the policy does not name.

    Other resources, such as KEDA's ScaledObject of a Deployment, stay.
    """
    resources = {name: (kind.group, get_plural(name)) for name, kind in read_kinds().items()}
    left = {resources[kind] for kind in executor.kinds if kind in resources}
    left -= {resources[kind] for kind in named if kind in resources}
    return tuple(
        write
        for write in list_writes(executor.rights)
        if (write.group, write.resource.partition("/")[0]) not in left
    )


def _list_restoring(policy: Policy, subjects: set[str]) -> tuple[Write, ...]:
    act = policy.stage("act")
    wanted = act is not None and act.parameters.get(RESTORE) is True
    return list_writes(RESTORE_RIGHTS) if wanted and "Pod" in subjects else ()


def _build_scope(
    policy: Policy, writes: tuple[Write, ...], *, annotations_only: bool = False
) -> Scope:
    match, allow = policy.match, policy.allow
    return Scope(
        source=policy.source or policy.name,
        writes=writes,
        namespaces=allow.namespaces,
        match_namespaces=match.namespaces,
        not_namespaces=match.not_namespaces,
        cluster_objects=allow.cluster_objects and not match.namespaces,
        namespace_labels=match.namespace_labels,
        pod_labels=match.labels,
        annotations_only=annotations_only,
    )


def _group_undo(action: Action) -> dict[tuple[str, str], tuple[Write, ...]]:
    """Return the writes of an undo by the namespace and name of their objects."""
    writes: dict[tuple[str, str], set[Write]] = {}
    target = action.intent.target
    for change in action.intent.undo:
        place = _PATH.match(change.path)
        if change.client != "kubernetes" or place is None:
            continue
        name = place["name"] or _read_new_name(change)
        key = place["namespace"] or "", name
        parts = filter(None, (place["resource"], place["part"]))
        operation = CREATE if change.method == "POST" else UPDATE
        write = Write(place["group"] or "", "/".join(parts), operation)
        writes.setdefault(key, set()).add(write)
        if change.target.name == name:
            # The annotations are removed from the object itself.
            writes[key].add(Write(write.group, place["resource"], UPDATE))
    for kind_name, kind in read_kinds().items():
        if kind.api_kind == target.kind and kind.switch != "hub":
            key = target.namespace, target.name
            writes.setdefault(key, set()).add(Write(kind.group, get_plural(kind_name), UPDATE))
    return {key: tuple(sorted(group)) for key, group in writes.items()}


def _read_new_name(change: Change) -> str:
    return str((change.body.get("metadata") or {}).get("name") or "")


def name_sources(scopes: Sequence[Scope]) -> tuple[str, ...]:
    """Return the sources of scopes, each once."""
    return tuple(dict.fromkeys(scope.source for scope in scopes))
