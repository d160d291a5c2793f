"""CronJob: its own switch stops only runs to come, so its live Jobs are suspended with it."""

from typing import ClassVar

import msgspec

from actions.cluster.objects import controller, deep, holds, name, target
from actions.reclaim import kueue
from actions.reclaim.kinds import kinds
from actions.reclaim.subjects import FINISHED, LOOK, Subject, intent, rights, subject
from actions.reclaim.switches import switched
from actions.reclaim.writes import Writes
from fallow.acting import Decision, Intent
from fallow.errors import RefusedError
from fallow.seams import Cluster, Right


class CronJobExecutor:
    """Suspend a CronJob and those of its Jobs that run."""

    kinds: ClassVar[frozenset[str]] = frozenset({"CronJob"})
    capabilities: ClassVar[frozenset[str]] = frozenset({"suspend"})
    verbs: ClassVar[frozenset[str]] = frozenset({"suspend"})
    rights: ClassVar[tuple[Right, ...]] = (
        *rights("CronJob"),
        *rights("Job", verbs=("list", "patch")),
        *kueue.RIGHTS,
        *LOOK,
    )

    def intend(self, decision: Decision, cluster: Cluster) -> Intent:
        """Return the writes that stop runs to come and runs that are; undone Jobs first.

        Raises:
            RefusedError: it is gone, owned, or nothing of it runs or will run.
            TemporaryError: the API does not answer.
        """
        found = subject(decision, cluster)
        writes: list[Writes] = []
        if deep(found.obj, "spec", "suspend") is not True:
            writes += switched(found, cluster, decision.at)
        for job in _live(found, cluster):
            writes += switched(job, cluster, decision.at)
        if not writes:
            raise RefusedError(f"{found} is stopped already")
        return intent(found, cluster, "suspend", tuple(writes))


def _live(found: Subject, cluster: Cluster) -> list[Subject]:
    kind = kinds()["Job"]
    path = cluster.collection("Job", kind.group, found.target.namespace)
    if path is None:
        return []
    live: list[Subject] = []
    for item in cluster.items(path):
        owner = controller(item) or {}
        over = any(holds(item, c) for c in FINISHED)
        if owner.get("uid") != found.target.uid or over or deep(item, "spec", "suspend") is True:
            continue
        job = {"apiVersion": "batch/v1", "kind": "Job", **item}
        live.append(Subject(kind, job, f"{path}/{name(job)}", target(job, cluster.name)))
    return sorted(live, key=lambda j: msgspec.structs.astuple(j.target))
