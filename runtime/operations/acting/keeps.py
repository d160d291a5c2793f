"""Keep a workload from being stopped: an annotation of the caller, and a row of the journal."""

from datetime import datetime
from typing import TYPE_CHECKING

from actions.journal import event_types
from actions.journal.action_state import format_subject_key
from actions.loop.annotate import KEPT_UNTIL
from actions.reclaim.kinds import read_kinds
from fallow.action_models import Change, Target
from fallow.errors import RefusedError, UsageError
from fallow.settings import Settings

if TYPE_CHECKING:
    from actions.cluster.client import KubeClient
    from actions.journal import JournalState


def keep_workload(
    settings: Settings,
    record: "JournalState",
    cluster: "KubeClient",
    workload: str,
    until: datetime,
) -> str:
    """Annotate a workload so that nothing stops it until a time, and record that in the journal.

    The write has the caller's identity: who may not annotate the workload may not keep it.

    Raises:
        UsageError: `workload` is no Kind/namespace/name, or there is no such workload.
        RefusedError: the API does not permit the caller's write.
        TemporaryError: no response.
    """
    parts = workload.split("/")
    if len(parts) != 3 or not all(parts):  # noqa: PLR2004
        raise UsageError(
            f"{workload!r} is no workload", hint="write Kind/namespace/name: Notebook/team-a/nb-1"
        )
    kind, space, name = parts
    if kind == kind.lower() and space != space.lower():  # namespace/Kind/name, as pages write it
        kind, space = space, kind
        workload = f"{kind}/{space}/{name}"
    kind_info = read_kinds().get(kind)
    api_kind, group = (kind_info.api_kind, kind_info.group) if kind_info else (kind, None)
    path = cluster.collection(api_kind, group, space)
    current = cluster.get(f"{path}/{name}") if path else None
    if path is None or current is None:
        raise UsageError(
            f"there is no {workload} in {cluster.name}",
            hint="`fallow actions` and `fallow plan` list them",
        )
    until_text = until.strftime("%Y-%m-%dT%H:%M:%SZ")
    meta = current.get("metadata") or {}
    target = Target(
        cluster.name, str(current.get("apiVersion")), api_kind, space, name, str(meta.get("uid"))
    )
    body = {"metadata": {"uid": target.uid, "annotations": {KEPT_UNTIL: until_text}}}
    change = Change(target, "PATCH", f"{path}/{name}", body, guarded=False)
    answer = cluster.send(change, dry_run=False)
    if not answer.ok:
        raise RefusedError(f"{workload} is not kept: {answer.reason}")
    key = format_subject_key((settings.cluster, kind, space, name))
    record.append(event_types.KEEP, key, {"until": until.isoformat()})
    return until_text
