"""Turn a rebalance of quota into writes: one action, lenders first, undone in reverse.

The proposal was made from stored rows. What counts now are the objects as the API shows them: a
guarantee that is not what the proposal saw refuses it all; use that rose shrinks it. Lowering a
quota never evicts what runs: it stops new admissions, and may let others take back what they
lent. Rebalance and reclaim are different actions.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, ClassVar

import msgspec

from actions.cluster.ownership import rivals
from actions.cluster.protections import protected
from actions.quota.accounts import Account, Solution, Wish
from actions.quota.once import Once
from actions.quota.proposals import Move, Proposal, read
from actions.quota.review import verdict
from actions.quota.solving import solve
from actions.quota.systems import SYSTEMS, Part, System
from actions.quota.systems.system import Object, key_of
from actions.quota.writes import write
from fallow.acting import Action, Decision, Intent, Reason, Target
from fallow.errors import RefusedError
from fallow.seams import Cluster, Right, Views

MANAGER = "fallow"


class QuotaExecutor:
    """Move guarantees between the quotas of a group."""

    kinds: ClassVar[frozenset[str]] = frozenset({"Quota"})
    capabilities: ClassVar[frozenset[str]] = frozenset({"quota"})
    verbs: ClassVar[frozenset[str]] = frozenset({"rebalance-quota"})
    rights: ClassVar[tuple[Right, ...]] = (
        *dict.fromkeys(right for system in SYSTEMS.values() for right in system.rights),
        Right("", "namespaces", ("get",)),
    )

    def intend(self, decision: Decision, cluster: Cluster) -> Intent:
        """Return the writes of a rebalance, all of them one action.

        Raises:
            UsageError: the decision has no proposal.
            RefusedError: the objects moved meanwhile, somebody else owns them, or nobody may give.
            TemporaryError: the API does not answer.
        """
        proposal, rules = read(decision.parameters)
        cluster = Once(cluster)
        system, path, objects = _found(proposal, cluster)
        part = Part(proposal.resource, proposal.flavor)
        accounts = {a.key: a for a in system.accounts(list(objects.values()), part)}
        _unmoved(proposal, accounts)
        for key in _touched(proposal, accounts):
            item = _named(objects[key], system, path)
            accounts[key] = _judged(accounts[key], item, system, cluster, decision.at)
        for move in proposal.moves:
            accounts[move.key] = _remembered(accounts[move.key], move, objects[move.key])
        wishes = [Wish(m.key, m.to_gpus) for m in proposal.moves]
        step = solve(list(accounts.values()), wishes, rules, decision.at)
        if not step.shifts:
            whys = "; ".join(f"{key}: {why}" for key, why in step.refused)
            raise RefusedError(f"no quota of {proposal.kind} may move: {whys}")
        return _intent(step, objects, system, part, cluster)

    def review(self, action: Action, views: Views, now: datetime) -> tuple[Reason, ...] | None:
        """Return why a step made waiting worse; () = it did not; None = too early to say."""
        return verdict(action, views, now)


def _found(proposal: Proposal, cluster: Cluster) -> tuple[System, str, dict[str, Object]]:
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
    return system, path, {key_of(item): item for item in cluster.items(path)}


def _unmoved(proposal: Proposal, accounts: Mapping[str, Account]) -> None:
    """Refuse a proposal whose figures are not those of the cluster any more."""
    for move in proposal.moves:
        have = accounts[move.key].guarantee if move.key in accounts else None
        if have is None or abs(have - move.from_gpus) > 1e-9:  # noqa: PLR2004
            now = "gone" if have is None else f"{have:g}"
            raise RefusedError(
                f"{proposal.kind} {move.key} had {move.from_gpus:g} when this was decided and is "
                f"{now} now",
                hint="somebody changed it meanwhile: the next look decides again",
            )


def _touched(proposal: Proposal, accounts: Mapping[str, Account]) -> list[str]:
    """Return the accounts that may be written: those that move, and all above them."""
    keys: dict[str, None] = {}
    for move in proposal.moves:
        here: str | None = move.key
        while here is not None and here in accounts and here not in keys:
            keys[here] = None
            here = accounts[here].parent
    return list(keys)


def _judged(
    account: Account, item: Object, system: System, cluster: Cluster, now: datetime
) -> Account:
    """Return the account, fixed where something speaks against writing its object."""
    if account.fixed:
        return account
    why = system.stuck(item, cluster) if system.stuck else ""
    if not why:
        space = item["metadata"].get("namespace")
        owner = cluster.get(f"/api/v1/namespaces/{space}") if space else {}
        found = (*protected([item], owner, now), *rivals(item, cluster))
        why = "; ".join(reason.text for reason in found)
    return msgspec.structs.replace(account, fixed=why)


def _remembered(account: Account, move: Move, item: Object) -> Account:
    """Return the account with what is known of its last change: rows, and the object's own word."""
    ours = _written_at(item)
    said = [at for at in (move.changed_at, ours) if at is not None]
    return msgspec.structs.replace(
        account,
        waiting=max(account.waiting, move.waiting_gpus),
        moved=move.changed_gpus,
        moved_at=max(said, default=None),
    )


def _written_at(item: Object) -> datetime | None:
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


def _intent(
    step: Solution, objects: Mapping[str, Object], system: System, part: Part, cluster: Cluster
) -> Intent:
    pairs = []
    for shift in step.shifts:
        item = objects[shift.key]
        space = item["metadata"].get("namespace", "")
        root = cluster.collection(system.api_kind, system.group or "", space)
        path = f"{root}/{item['metadata']['name']}"
        target = _target(item, system, path, cluster.name)
        fields = system.fields(item, part, shift.change)
        # Only a leaf that shrinks leaves every sum valid, whatever comes after it.
        alone = shift.change < 0 and shift.key not in step.parents
        pairs.append(write(target, path, fields, depends=system.sums and not alone))
    changes = tuple(change for change, _ in pairs)
    gave = [f"{s.key} {s.before:g} -> {s.after:g}" for s in step.shifts]
    return Intent(
        changes[0].target,
        "quota",
        changes,
        tuple(undo for _, undo in reversed(pairs)),
        notes=(
            f"{step.moved:g} of {part.resource} change hands: {', '.join(gave)}",
            "lowering a quota evicts nothing: it ends new admissions, and may let others reclaim",
            *(f"{key} stays as it is: {why}" for key, why in step.refused),
        ),
    )


def _target(item: Object, system: System, path: str, cluster: str) -> Target:
    meta = item["metadata"]
    return Target(
        cluster,
        _version(path),
        system.api_kind,
        meta.get("namespace", ""),
        meta["name"],
        meta["uid"],
        meta.get("resourceVersion"),
        meta.get("generation"),
    )


def _named(item: Object, system: System, path: str) -> dict[str, Any]:
    """Return an item of a list with its kind: lists of built-in kinds leave it out."""
    return {"apiVersion": _version(path), "kind": system.api_kind, **item}


def _version(path: str) -> str:
    parts: Sequence[str] = path.split("/")
    return parts[2] if parts[1] == "api" else f"{parts[2]}/{parts[3]}"
