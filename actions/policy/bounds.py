"""What an intent may be, however its executor came to it: what the policy allowed, and where."""

from actions.policy.matching import any_of
from fallow.acting import Decision, Intent, Reason


def beyond(decision: Decision, intent: Intent) -> tuple[Reason, ...]:
    """Return why an intent goes further than its decision allows; nothing = it does not.

    Its capability, or the verb, has to be a word of the policy's `act`; and every object it
    writes that lies in a namespace has to lie in one of `allow.namespaces`.
    """
    words = tuple(decision.parameters.get("capabilities") or ())
    spaces = tuple(decision.parameters.get("allowed_namespaces") or ())
    found = []
    if intent.capability not in words and decision.verb not in words:
        said = f"the policy allows {', '.join(words) or 'nothing'}, not {intent.capability}"
        found.append(Reason("verb", said))
    touched = {change.target.namespace for change in intent.changes if change.target.namespace}
    for space in sorted(touched):
        if not any_of(spaces, space):
            listed = ", ".join(spaces) or "empty"
            found.append(Reason("namespace", f"{space} is not in allow.namespaces ({listed})"))
    return tuple(found)
