"""Check that an intent stays within its policy's capabilities and namespaces."""

from actions.policy.matching import is_any_match
from fallow.action_models import Decision, Intent, Reason


def find_excess(decision: Decision, intent: Intent) -> tuple[Reason, ...]:
    """Return why an intent goes further than its decision allows; empty = it does not.

    Its capability, or the verb, must be in the policy's `act`. Every namespaced object that it
    writes must be in one of `allow.namespaces`.
    """
    allowed = tuple(decision.parameters.get("capabilities") or ())
    globs = tuple(decision.parameters.get("allowed_namespaces") or ())
    reasons = []
    if intent.capability not in allowed and decision.verb not in allowed:
        text = f"the policy allows {', '.join(allowed) or 'nothing'}, not {intent.capability}"
        reasons.append(Reason("verb", text))
    namespaces = {change.target.namespace for change in intent.changes if change.target.namespace}
    for namespace in sorted(namespaces):
        if not is_any_match(globs, namespace):
            listed = ", ".join(globs) or "empty"
            reasons.append(
                Reason("namespace", f"{namespace} is not in allow.namespaces ({listed})")
            )
    return tuple(reasons)
