"""Find what holds an act because its pods are under disruption budgets, just before it.

The budgets that the actor lists decide. Where it may not list them, those of the last minutes'
polls do; where nobody read them, the act is held: an unknown budget is no absent one.
"""

import math
from collections.abc import Collection, Sequence

from msgspec.structs import replace

from actions.cluster.budgets import GROUP, RESOURCE, list_covering_budgets
from actions.policy.matching import list_excesses
from fallow.action_models import Facts, Intent, Reason
from fallow.disruptions import CoveringBudget
from fallow.errors import RefusedError
from fallow.kube.objects import Object, get_uid, has_ended
from fallow.protocols import ClusterReader

GATE = "held"
REPLICAS = "/spec/replicas"


def find_held(
    intent: Intent, facts: Facts, held_by: tuple[str, ...], cluster: ClusterReader
) -> tuple[Reason, ...]:
    """Return the budgets that allow fewer disruptions than the act takes pods; () = none does.

    `held_by`: the globs of budgets that the policy lifts.

    Raises:
        TemporaryError: the API does not answer.
    """
    pods, most = _find_taken(intent, cluster)
    if not most:
        return ()
    try:
        budgets: Collection[CoveringBudget] = [*list_covering_budgets(pods, cluster)]
    except RefusedError as error:
        if facts.budgets is None:
            space = intent.target.namespace
            text = (
                f"whether a disruption budget covers its pods is unknown ({error.message}): let "
                f"the actor list {RESOURCE}.{GROUP} in {space}, or the collector in the cluster"
            )
            return (Reason(GATE, text),)
        budgets = facts.budgets
    limits = [replace(b, pods=min(b.pods, most)) for b in budgets]
    return tuple(Reason(GATE, text) for text in list_excesses(limits, held_by))


def _find_taken(intent: Intent, cluster: ClusterReader) -> tuple[Sequence[Object], int]:
    """Return the pods from which an act takes some, and how many it takes.

    An eviction takes none here: the API server itself asks the budgets of each.
    """
    evicted = {c.target.uid for c in intent.changes if c.path.endswith("/eviction")}
    freed = {f.uid for f in intent.frees} - evicted
    share = max((_compute_share(c.was, c.becomes) for c in intent.changes), default=0.0)
    if not freed and (intent.frees or not share):
        return (), 0
    pods = [p for p in cluster.pods(intent.target) if not has_ended(p)]
    if freed:
        pods = [p for p in pods if get_uid(p) in freed]
        return pods, len(pods)
    return pods, math.ceil(len(pods) * share)


def _compute_share(was: dict[str, object], becomes: dict[str, object]) -> float:
    """Return the share of its replicas that a write takes; 0 = it takes none."""
    before, after = was.get(REPLICAS), becomes.get(REPLICAS)
    if not isinstance(before, int) or not isinstance(after, int) or after >= before:
        return 0.0
    return (before - after) / before
