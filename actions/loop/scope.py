"""Compare what a write would free with what its decision covers.

The API shows which pods of the target are bound to a node now, and what GPUs they hold. A pending
pod holds nothing. Pods without evidence are never stopped along with the rest.
"""

from actions.recommend import stop_verbs
from fallow.action_models import Facts, FreedPod, Intent, Reason

TOLERANCE = 0.01
"""GPUs; the comparison is for whole GPUs, and shares are sums of floats."""


def find_mismatch(facts: Facts, intent: Intent) -> Reason | None:
    """Return why a stop would free something else than the evidence covers; None = it would not.

    Only stops of whole workloads are compared: they free all that their pods hold.
    """
    if facts.recommendation.verb not in stop_verbs() or not intent.frees:
        return None
    bound = [h for h in intent.frees if h.node and h.gpus > 0]
    frees = sum(h.gpus for h in bound)
    unseen = [h for h in bound if not _is_in_evidence(facts, h)]
    missing = _find_missing_pods(facts, intent.frees)
    is_whole = all(h.gpus == round(h.gpus) for h in bound)
    if not unseen and not missing and (not is_whole or abs(frees - facts.gpus) <= TOLERANCE):
        return None
    text = f"would free {frees:g} GPUs, the evidence is about {facts.gpus:g}"
    if unseen:
        first = min(unseen, key=lambda h: h.pod)
        more = f" and {len(unseen) - 1} more" if len(unseen) > 1 else ""
        has = "has" if len(unseen) == 1 else "have"
        text += f": replica {first.pod} on node {first.node}{more} {has} no telemetry"
    elif missing:
        text += f": replica {missing[0]} of the evidence is bound no more"
    return Reason("scope", text)


def _is_in_evidence(facts: Facts, pod: FreedPod) -> bool:
    """Return whether the evidence covers a pod; where it names no pods, only GPUs are compared."""
    if facts.pods is None:
        return True
    return any(p.uid == pod.uid if p.uid else p.pod == pod.pod for p in facts.pods)


def _find_missing_pods(facts: Facts, freed: tuple[FreedPod, ...]) -> list[str]:
    uids = {h.uid for h in freed if h.node}
    names = {h.pod for h in freed if h.node}
    return sorted(
        p.pod for p in facts.pods or () if (p.uid not in uids if p.uid else p.pod not in names)
    )
