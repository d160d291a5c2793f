"""CronJob: its own switch stops only future runs, so its active Jobs are suspended too."""

from typing import ClassVar

import msgspec

from actions.reclaim import kueue
from actions.reclaim.kinds import read_kinds
from actions.reclaim.subjects import (
    FINISHED,
    POD_RIGHTS,
    LiveWorkload,
    build_intent,
    build_rights,
    read_workload,
)
from actions.reclaim.switches import build_writes
from actions.reclaim.writes import UndoableChange
from fallow.action_models import Decision, Intent
from fallow.errors import RefusedError
from fallow.kube.objects import find_controller, get_path, has_condition, name, to_target
from fallow.protocols import ClusterReader, Right


class CronJobExecutor:
    """Suspend a CronJob and those of its Jobs that run."""

    kinds: ClassVar[frozenset[str]] = frozenset({"CronJob"})
    capabilities: ClassVar[frozenset[str]] = frozenset({"suspend"})
    verbs: ClassVar[frozenset[str]] = frozenset({"suspend"})
    rights: ClassVar[tuple[Right, ...]] = (
        *build_rights("CronJob"),
        *build_rights("Job", verbs=("list", "patch")),
        *kueue.RIGHTS,
        *POD_RIGHTS,
    )

    def writes(self, decision: Decision, cluster: ClusterReader) -> Intent:
        """Return the writes that stop future and active runs; the undo resumes Jobs first.

        Raises:
            RefusedError: it is gone, owned, or has no active or future runs.
            TemporaryError: the API does not answer.
        """
        workload = read_workload(decision, cluster)
        writes: list[UndoableChange] = []
        if get_path(workload.obj, "spec", "suspend") is not True:
            writes += build_writes(workload, cluster, decision.at)
        for job in _find_live_jobs(workload, cluster):
            writes += build_writes(job, cluster, decision.at)
        if not writes:
            raise RefusedError(f"{workload} is stopped already")
        return build_intent(workload, cluster, "suspend", tuple(writes))


def _find_live_jobs(workload: LiveWorkload, cluster: ClusterReader) -> list[LiveWorkload]:
    kind = read_kinds()["Job"]
    path = cluster.collection("Job", kind.group, workload.target.namespace)
    if path is None:
        return []
    live: list[LiveWorkload] = []
    for item in cluster.items(path):
        owner = find_controller(item) or {}
        is_finished = any(has_condition(item, c) for c in FINISHED)
        if (
            owner.get("uid") != workload.target.uid
            or is_finished
            or get_path(item, "spec", "suspend") is True
        ):
            continue
        job = {"apiVersion": "batch/v1", "kind": "Job", **item}
        live.append(LiveWorkload(kind, job, f"{path}/{name(job)}", to_target(job, cluster.name)))
    return sorted(live, key=lambda j: msgspec.structs.astuple(j.target))
