"""Check before an act that its undo may create what the act removes.

A dry run of the undo is not possible while the object exists, so the API is asked for the right.
"""

from actions.loop.protocols import ClusterClient
from actions.reclaim.evicting import RESTORE_RIGHTS, RESTORE_ROLE
from actions.rights import check_rights
from fallow.action_models import Intent
from fallow.errors import RefusedError


def require_undo_rights(intent: Intent, cluster: ClusterClient) -> None:
    """Refuse an eviction whose undo may not create the pod again.

    Raises:
        RefusedError: the right is missing, or the API does not answer reviews.
        TemporaryError: no answer.
    """
    created = {c.target.namespace for c in intent.undo if c.method == "POST"}
    if intent.capability != "evict" or not created:
        return
    checks = check_rights(cluster.review, {RESTORE_ROLE: RESTORE_RIGHTS}, sorted(created))
    lacking = [check for check in checks if not check.allowed]
    if lacking:
        places = ", ".join(check.namespace for check in lacking)
        raise RefusedError(
            f"its undo has to create pods in {places}, which this account may not: bind "
            f"{RESTORE_ROLE} of deploy/rbac/actor.yaml there"
        )
