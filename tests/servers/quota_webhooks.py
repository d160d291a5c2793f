"""Validating webhooks of quota CRDs, as their schedulers install them: `Store.webhooks` runs them.

A store has none at first: a CRD without its operator accepts everything. Sources: Volcano
pkg/webhooks/admission/queues/validate/validate_queue.go, Kueue pkg/webhooks
(clusterqueue_webhook.go), Koordinator pkg/webhook/elasticquota (quota_topology_check.go). KAI's
only warns about sums, scheduler-plugins has none: there the writers have to check the sums.
"""

from collections.abc import Iterable, Iterator, Mapping
from fractions import Fraction
from typing import Any

from fallow.kube.quantities import require_quantity
from simulator.kube.status import StatusError
from simulator.kube.store import Listed, Webhook

Object = dict[str, Any]
KOORDINATOR = "quota.scheduling.koordinator.sh"
KOORDINATOR_ROOT = "koordinator-root-quota"
KOORDINATOR_OWN = {KOORDINATOR_ROOT, "koordinator-default-quota", "koordinator-system-quota"}


def check_kueue(new: Object, _old: Object | None, _listed: Listed) -> None:
    """Judge a ClusterQueue: limits only in a cohort, lending within nominal, nothing negative.

    Raises:
        ApiError: 403 with the fields that are wrong.
    """
    spec = new["spec"]
    wrongs = list(_find_kueue_errors(spec, bool(spec.get("cohortName") or spec.get("cohort"))))
    if wrongs:
        message = f"spec.resourceGroups: {'; '.join(wrongs)}"
        raise _deny("vclusterqueue.kb.io", message, 403, "Forbidden")


def _find_kueue_errors(spec: Mapping[str, Any], cohort: bool) -> Iterator[str]:
    for group in spec.get("resourceGroups") or ():
        for flavor in group["flavors"]:
            names = [r["name"] for r in flavor["resources"]]
            if names != list(group.get("coveredResources") or names):
                yield f"{flavor['name']}: must match the name in coveredResources"
            for quota in flavor["resources"]:
                problems = {
                    k: require_quantity(quota[k])
                    for k in ("nominalQuota", "borrowingLimit", "lendingLimit")
                    if quota.get(k) is not None
                }
                yield from (
                    f"{k}: must be greater than or equal to 0" for k, v in problems.items() if v < 0
                )
                limits = problems.keys() - {"nominalQuota"}
                if limits and not cohort:
                    yield f"{min(limits)}: must be nil when cohort is empty"
                if problems.get("lendingLimit", Fraction(0)) > problems["nominalQuota"]:
                    yield "lendingLimit: must be less than or equal to the nominalQuota"


def check_volcano(new: Object, old: Object | None, listed: Listed) -> None:
    """Judge a Volcano queue: guarantee <= deserved <= capability, here and in the tree.

    Raises:
        ApiError: 400 with what is wrong first.
    """
    name = new["metadata"]["name"]
    others = {q["metadata"]["name"]: q for q in listed("Queue.scheduling.volcano.sh")}
    queues = {**others, name: new}
    for wrong in _find_volcano_errors(name, new, old, queues):
        raise _deny("validatequeue.volcano.sh", wrong, 400, "")


def _find_volcano_errors(
    name: str, new: Object, old: Object | None, queues: Mapping[str, Object]
) -> Iterator[str]:
    parts = ("capability", "deserved", "guarantee")
    if name == "root" and old is not None:
        for part in parts:
            if old["spec"].get(part) != new["spec"].get(part):
                yield f"root queue's {part} is immutable"
    mine = {part: _get_queue(new, part) for part in parts}
    for lower, upper in (("guarantee", "deserved"), ("deserved", "capability")):
        for resource, value in mine[lower].items():
            if value > mine[upper].get(resource, value):
                yield f"{lower} of {resource} should less equal than {upper}"
    if name != "root":
        yield from _check_volcano_tree(name, mine["capability"], queues)


def _check_volcano_tree(
    name: str, capability: Mapping[str, Fraction], queues: Mapping[str, Object]
) -> Iterator[str]:
    line, parent = [], queues[name]["spec"].get("parent") or "root"
    while parent in queues and parent not in line:
        line.append(parent)
        parent = "" if parent == "root" else queues[parent]["spec"].get("parent") or "root"
    for above in line:
        for resource, most in _get_queue(queues[above], "capability").items():
            if capability.get(resource, Fraction(0)) > most:
                yield f"queue {name} capability is greater than that of its ancestor {above}"
    for above in (*line[:1], name):
        yield from _check_volcano_sums(above, queues)


def _check_volcano_sums(above: str, queues: Mapping[str, Object]) -> Iterator[str]:
    if above not in queues:
        return
    below = [
        q
        for n, q in queues.items()
        if n not in {above, "root"} and (q["spec"].get("parent") or "root") == above
    ]
    for part in ("guarantee", "deserved"):
        for resource, most in _get_queue(queues[above], part).items():
            if sum(_get_queue(q, part).get(resource, Fraction(0)) for q in below) > most:
                yield f"the sum of children's {part} of {resource} exceeds that of queue {above}"


def _get_queue(queue: Object, part: str) -> dict[str, Fraction]:
    amounts = queue["spec"].get(part) or {}
    amounts = (amounts.get("resource") or {}) if part == "guarantee" else amounts
    return {k: require_quantity(v) for k, v in amounts.items()}


def check_koordinator(new: Object, old: Object | None, listed: Listed) -> None:
    """Judge a Koordinator ElasticQuota: min <= max, same keys, sums within the parent's min.

    Raises:
        ApiError: 400 with what is wrong first.
    """
    for wrong in _find_koordinator_errors(new, old, listed("ElasticQuota.scheduling.sigs.k8s.io")):
        raise _deny("vquota.koordinator.sh", wrong, 400, "BadRequest")


def _find_koordinator_errors(
    new: Object, old: Object | None, every: Iterable[Object]
) -> Iterator[str]:
    name = new["metadata"]["name"]
    if name in KOORDINATOR_OWN and old is not None and old["spec"] != new["spec"]:
        yield f"invalid quota {name}: the system's quotas are not to be changed"
    low, high = (_parse_amounts(new, part) for part in ("min", "max"))
    for resource, value in low.items():
        if value < 0 or high.get(resource, Fraction(-1)) < value:
            yield f"{name}: min {resource} is negative, above max, or not in max"
    quotas = {q["metadata"]["name"]: q for q in every}
    quotas[name] = new
    above = quotas.get(_get_parent(new))
    if above is not None and _get_parent(new) != KOORDINATOR_ROOT:
        if _parse_amounts(above, "max").keys() != high.keys():
            yield f"{name}: max has not the keys of its parent's"
        if _get_tree(above) != _get_tree(new):
            yield f"{name}: its tree is not its parent's"
        yield from _check_koordinator_sum(_get_parent(new), quotas)
    yield from _check_koordinator_sum(name, quotas)


def _check_koordinator_sum(parent: str, quotas: Mapping[str, Object]) -> Iterator[str]:
    if parent == KOORDINATOR_ROOT:
        return
    below = [q for n, q in quotas.items() if _get_parent(q) == parent and n != parent]
    for resource in {r for q in below for r in _parse_amounts(q, "min")}:
        total = sum(_parse_amounts(q, "min").get(resource, Fraction(0)) for q in below)
        if total > _parse_amounts(quotas[parent], "min").get(resource, Fraction(0)):
            yield f"all brother quotas' min sum > parent's min: {parent}, {resource}"


def _get_parent(quota: Object) -> str:
    labels = quota["metadata"].get("labels") or {}
    return str(labels.get(f"{KOORDINATOR}/parent") or KOORDINATOR_ROOT)


def _get_tree(quota: Object) -> str:
    return str((quota["metadata"].get("labels") or {}).get(f"{KOORDINATOR}/tree-id") or "")


def _parse_amounts(quota: Object, part: str) -> dict[str, Fraction]:
    return {k: require_quantity(v) for k, v in (quota["spec"].get(part) or {}).items()}


def _deny(webhook: str, why: str, code: int, reason: str) -> StatusError:
    message = f'admission webhook "{webhook}" denied the request: {why}'
    return StatusError(code, reason, message, {})


QUOTA_WEBHOOKS: Mapping[str, Webhook] = {
    "ClusterQueue.kueue.x-k8s.io": check_kueue,
    "Queue.scheduling.volcano.sh": check_volcano,
    "ElasticQuota.scheduling.sigs.k8s.io": check_koordinator,
}
