"""Turn a rebalance of quota into writes: one action, givers first, undone in reverse.

The proposal was built from stored rows. The objects in the API decide now. If a nominal quota is
not the proposal's, the whole rebalance is refused; if use rose, the step is smaller. Lowering a
quota never evicts a running pod: it stops new admissions, and may let others reclaim what they
lent. Rebalance and reclaim are different actions.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, ClassVar

import msgspec

from actions.cluster.cached_cluster import CachedCluster
from actions.cluster.obstacles import find_obstacles
from actions.cluster.protections import find_protections
from actions.quota.accounts import Account, QuotaStep, TargetQuota
from actions.quota.proposals import QuotaMove, RebalanceProposal, read_proposal
from actions.quota.review import find_harm
from actions.quota.solver import solve
from actions.quota.systems import SYSTEMS, CountedResource, QuotaSystem
from actions.quota.systems.system import Object, get_key
from actions.quota.writes import build_patches
from fallow.action_models import Action, Decision, Intent, Reason, Target
from fallow.errors import RefusedError
from fallow.protocols import ClusterReader, Right, Views

MANAGER = "fallow"


class QuotaExecutor:
    """Move nominal quotas between the quotas of a group."""

    kinds: ClassVar[frozenset[str]] = frozenset({"Quota"})
    capabilities: ClassVar[frozenset[str]] = frozenset({"quota"})
    verbs: ClassVar[frozenset[str]] = frozenset({"rebalance-quota"})
    rights: ClassVar[tuple[Right, ...]] = (
        *dict.fromkeys(right for system in SYSTEMS.values() for right in system.rights),
        Right("", "namespaces", ("get",)),
    )

    def writes(self, decision: Decision, cluster: ClusterReader) -> Intent:
        """Return the writes of a rebalance, all of them one action.

        Raises:
            UsageError: the decision has no proposal.
            RefusedError: the objects changed meanwhile, another client owns them, or no account may
                give.
            TemporaryError: the API does not answer.
        """
        proposal, rules = read_proposal(decision.parameters)
        cluster = CachedCluster(cluster)
        system, path, objects = _read_objects(proposal, cluster)
        part = CountedResource(proposal.resource, proposal.flavor)
        accounts = {a.key: a for a in system.accounts(list(objects.values()), part)}
        _require_unmoved(proposal, accounts)
        for key in _list_touched(proposal, accounts):
            item = _get_named(objects[key], system, path)
            accounts[key] = _check_account(accounts[key], item, system, cluster, decision.at)
        for move in proposal.moves:
            accounts[move.key] = _add_last_change(accounts[move.key], move, objects[move.key])
        wishes = [TargetQuota(m.key, m.to_gpus) for m in proposal.moves]
        step = solve(list(accounts.values()), wishes, rules, decision.at)
        if not step.shifts:
            refusals = "; ".join(f"{key}: {why}" for key, why in step.refused)
            raise RefusedError(f"no quota of {proposal.kind} may move: {refusals}")
        return _build_intent(step, objects, system, part, cluster)

    def review(self, action: Action, views: Views, now: datetime) -> tuple[Reason, ...] | None:
        """Return why a step increased waiting; () = it did not; None = too early."""
        return find_harm(action, views, now)


def _read_objects(
    proposal: RebalanceProposal, cluster: ClusterReader
) -> tuple[QuotaSystem, str, dict[str, Object]]:
    system = SYSTEMS.get(proposal.kind)
    if system is None:
        legal = ", ".join(sorted(SYSTEMS))
        raise RefusedError(f"no quota is called {proposal.kind!r}", hint=f"legal: {legal}")
    why = system.closed(cluster) if system.closed else ""
    if why:
        raise RefusedError(why)
    path = cluster.collection(system.api_kind, system.group or "")
    if path is None:
        raise RefusedError(f"{cluster.name} serves no {system.api_kind} of {system.group or 'v1'}")
    return system, path, {get_key(item): item for item in cluster.items(path)}


def _require_unmoved(proposal: RebalanceProposal, accounts: Mapping[str, Account]) -> None:
    """Refuse a proposal whose figures differ from the cluster's."""
    for move in proposal.moves:
        nominal = accounts[move.key].nominal if move.key in accounts else None
        if nominal is None or abs(nominal - move.from_gpus) > 1e-9:  # noqa: PLR2004
            current = "gone" if nominal is None else f"{nominal:g}"
            raise RefusedError(
                f"{proposal.kind} {move.key} had {move.from_gpus:g} when this was decided and is "
                f"{current} now",
                hint="somebody changed it meanwhile: the next evaluation decides again",
            )


def _list_touched(proposal: RebalanceProposal, accounts: Mapping[str, Account]) -> list[str]:
    """Return the accounts that may be written: those that move, and all above them."""
    keys: dict[str, None] = {}
    for move in proposal.moves:
        key_above: str | None = move.key
        while key_above is not None and key_above in accounts and key_above not in keys:
            keys[key_above] = None
            key_above = accounts[key_above].parent
    return list(keys)


def _check_account(
    account: Account, item: Object, system: QuotaSystem, cluster: ClusterReader, now: datetime
) -> Account:
    """Return the account, fixed where its object must not be written."""
    if account.fixed:
        return account
    why = system.stuck(item, cluster) if system.stuck else ""
    if not why:
        namespace = item["metadata"].get("namespace")
        owner = cluster.get(f"/api/v1/namespaces/{namespace}") if namespace else {}
        reasons = (*find_protections([item], owner, now), *find_obstacles(item, cluster))
        why = "; ".join(reason.text for reason in reasons)
    return msgspec.structs.replace(account, fixed=why)


def _add_last_change(account: Account, move: QuotaMove, item: Object) -> Account:
    """Return the account with its last change, from stored rows and the object's own fields."""
    written_at = _get_write_time(item)
    times = [at for at in (move.changed_at, written_at) if at is not None]
    return msgspec.structs.replace(
        account,
        waiting=max(account.waiting, move.waiting_gpus),
        moved=move.changed_gpus,
        moved_at=max(times, default=None),
    )


def _get_write_time(item: Object) -> datetime | None:
    """Return when we last wrote the object's spec, by its managed fields."""
    times = [
        datetime.fromisoformat(entry["time"])
        for entry in item["metadata"].get("managedFields") or ()
        if entry.get("manager") == MANAGER
        and not entry.get("subresource")
        and entry.get("time")
        and "f:spec" in (entry.get("fieldsV1") or {})
    ]
    return max(times, default=None)


def _build_intent(
    step: QuotaStep,
    objects: Mapping[str, Object],
    system: QuotaSystem,
    part: CountedResource,
    cluster: ClusterReader,
) -> Intent:
    pairs = []
    for shift in step.shifts:
        item = objects[shift.key]
        namespace = item["metadata"].get("namespace", "")
        root = cluster.collection(system.api_kind, system.group or "", namespace)
        path = f"{root}/{item['metadata']['name']}"
        target = _build_target(item, system, path, cluster.name)
        fields = system.fields(item, part, shift.change)
        # Only a leaf that shrinks keeps every sum valid, whatever comes after it.
        is_independent = shift.change < 0 and shift.key not in step.parents
        pairs.append(
            build_patches(target, path, fields, depends=system.sums and not is_independent)
        )
    changes = tuple(change for change, _ in pairs)
    changes_text = [f"{s.key} {s.before:g} -> {s.after:g}" for s in step.shifts]
    return Intent(
        changes[0].target,
        "quota",
        changes,
        tuple(undo for _, undo in reversed(pairs)),
        notes=(
            f"{step.moved:g} of {part.resource} change hands: {', '.join(changes_text)}",
            "lowering a quota evicts nothing: it ends new admissions, and may let others reclaim",
            *(f"{key} stays as it is: {why}" for key, why in step.refused),
        ),
    )


def _build_target(item: Object, system: QuotaSystem, path: str, cluster: str) -> Target:
    meta = item["metadata"]
    return Target(
        cluster,
        _get_version(path),
        system.api_kind,
        meta.get("namespace", ""),
        meta["name"],
        meta["uid"],
        meta.get("resourceVersion"),
        meta.get("generation"),
    )


def _get_named(item: Object, system: QuotaSystem, path: str) -> dict[str, Any]:
    """Return an item of a list with its kind: lists of built-in kinds leave it out."""
    return {"apiVersion": _get_version(path), "kind": system.api_kind, **item}


def _get_version(path: str) -> str:
    parts: Sequence[str] = path.split("/")
    return parts[2] if parts[1] == "api" else f"{parts[2]}/{parts[3]}"
