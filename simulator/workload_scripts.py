"""Assign scripts to all pods, from the arrivals that they belong to.

A pod's script begins when its containers run (a gang's, when all of them do); until then it is
pulling its image, or waits for the other ranks with its devices held. An interrupted job continues
from its last checkpoint.
"""

from collections.abc import Iterable

import msgspec

from fallow.gpu_models import find_gpu_model
from simulator.arrivals import Arrival
from simulator.models import Holder
from simulator.work.behaviours import Script, WorkPlan, build_script, resume
from simulator.work.chance import draw_uniform
from simulator.work.plans import draw_numbers

Key = tuple[str, str, str]
"""Kind, namespace and name of a workload's topmost owner."""

GANGS = {"PyTorchJob"}
"""Kinds whose pods are the ranks of one job."""
FINISHED_KEPT = "finished but kept"
FINITE = {"training", "fp32 training", "straggling training", "input-bound training",
          "preparing training", "idle rank", "batch", FINISHED_KEPT}  # fmt: skip
KEPT_FROM, KEPT_TO = 0.2, 0.7
"""Share of its lifetime for which a finished workload that keeps its devices has worked."""
FOREVER_S = 1e12
LEAST_WORK_S = 60.0


class WorkloadPod(msgspec.Struct):
    """One pod's index in a workload."""

    uid: str
    begun: bool = False


class SimulatedWorkload:
    """One workload: its plan, its pods, and the scripts they follow."""

    def __init__(self, arrival: Arrival) -> None:
        self.arrival = arrival
        self.plans = [_plan(arrival, index) for index in range(arrival.category.replicas)]
        self.gang = arrival.category.kind in GANGS and arrival.category.replicas > 1
        self.parts: dict[int, WorkloadPod] = {}
        """Pods that hold devices, by their index."""
        self.running: dict[int, Script] = {}
        self.since_s: float | None = None
        """When it first ran."""
        self.counted = False
        """When its owner deletes it, if ever."""

    def place(self, holder: Holder) -> int:
        """Return the index of a new pod: a rank by its name, else the first vacant one."""
        if self.arrival.category.kind in GANGS:
            _, _, tail = holder.pod.removeprefix(f"{self.arrival.name}-").rpartition("-")
            return 0 if "-master-" in holder.pod else 1 + int(tail)
        return next(n for n in range(len(self.plans) + 1) if n not in self.parts)

    @property
    def ends(self) -> bool:
        """Whether its work ends: a job that neither hangs nor keeps its devices."""
        behaviour = self.arrival.category.behaviour
        return behaviour in FINITE and behaviour != FINISHED_KEPT

    @property
    def complete(self) -> bool:
        """Whether all ranks of a gang run."""
        return len(self.parts) == len(self.plans) and all(p.begun for p in self.parts.values())


class WorkloadScripts:
    """All workloads by key, and the script of every pod by uid."""

    def __init__(self) -> None:
        self.roles: dict[Key, SimulatedWorkload] = {}
        self.scripts: dict[str, Script] = {}
        self._of: dict[str, tuple[SimulatedWorkload, int]] = {}

    def add(self, arrival: Arrival) -> SimulatedWorkload:
        """Add a submitted workload."""
        category = arrival.category
        workload = SimulatedWorkload(arrival)
        self.roles[category.kind, category.namespace, arrival.name] = workload
        return workload

    def role(self, pod_uid: str) -> SimulatedWorkload | None:
        """Return the workload of a pod that holds devices."""
        entry = self._of.get(pod_uid)
        return None if entry is None else entry[0]

    def runs(self, pod_uid: str) -> bool:
        """Return whether a pod that holds devices already follows its own script."""
        entry = self._of.get(pod_uid)
        return entry is not None and entry[0].parts[entry[1]].begun

    def list_waiting_ranks(self, pod_uid: str) -> list[str]:
        """Return the pods of the pod's gang if some of them run already, and may wait for it."""
        workload = self.role(pod_uid)
        if workload is None or not workload.gang:
            return []
        parts = workload.parts.values()
        return [p.uid for p in parts] if any(p.begun for p in parts) else []

    def hold(self, holder: Holder, now_s: float) -> bool:
        """Process a pod that got devices; return whether its workload is known."""
        workload = self.roles.get((holder.workload_kind, holder.namespace, holder.workload))
        if workload is None:
            return False
        index = workload.place(holder)
        if index >= len(workload.plans):
            workload.plans.append(_plan(workload.arrival, index))
        if index in workload.parts:
            # A rank whose predecessor is still being deleted.
            self.end(workload.parts[index].uid, now_s)
        workload.parts[index] = WorkloadPod(holder.uid)
        self._of[holder.uid] = (workload, index)
        self.scripts[holder.uid] = _pull_script(workload.plans[index], now_s)
        return True

    def begin(self, pod_uid: str, now_s: float) -> list[tuple[str, float]]:
        """Start a pod; return the pods whose work will end, and when."""
        if pod_uid not in self._of:
            return []
        workload, index = self._of[pod_uid]
        workload.parts[index].begun = True
        if workload.gang and not workload.complete:
            plan = _add_parameters(workload.plans[index], rendezvous_s=FOREVER_S)
            self.scripts[pod_uid] = build_script(plan, now_s)
            return []
        workload.since_s = now_s if workload.since_s is None else workload.since_s
        indices = list(workload.parts) if workload.gang else [index]
        ends = []
        for n in indices:
            pod_script = build_script(workload.plans[n], now_s)
            workload.running[n] = self.scripts[workload.parts[n].uid] = pod_script
            if pod_script.done_s is not None:
                ends.append((workload.parts[n].uid, pod_script.done_s))
        return ends

    def end(self, pod_uid: str, now_s: float) -> list[str]:
        """Process a pod that lost its devices; return the other ranks, which cannot continue."""
        entry = self._of.pop(pod_uid, None)
        if entry is None:
            return []
        workload, index = entry
        workload.parts.pop(index, None)
        stopped_script = workload.running.pop(index, None)
        if stopped_script is None:
            return []
        is_done = stopped_script.done_s is not None and stopped_script.done_s <= now_s
        if is_done:
            return []
        workload.plans[index] = resume(stopped_script, now_s)
        others = [p.uid for p in workload.parts.values()] if workload.gang else []
        for n, rank_script in list(workload.running.items()) if workload.gang else ():
            workload.plans[n] = resume(rank_script, now_s)
            del workload.running[n]
        return others

    def forget(self, uids: Iterable[str]) -> None:
        """Delete the scripts of pods that are not needed any more."""
        needed = {*uids, *self._of}
        self.scripts = {uid: s for uid, s in self.scripts.items() if uid in needed}


def _pull_script(plan: WorkPlan, now_s: float) -> Script:
    return build_script(_add_parameters(plan, pull_s=FOREVER_S), now_s)


def _add_parameters(plan: WorkPlan, **params: float) -> WorkPlan:
    return msgspec.structs.replace(plan, params={**plan.params, **params})


def _plan(arrival: Arrival, index: int) -> WorkPlan:
    """Return what one pod of an arrival does, from its first start on."""
    category = arrival.category
    gang = category.kind in GANGS
    seed = arrival.seed if gang else arrival.seed + index
    ranks = category.gpus * category.replicas if gang else category.gpus
    gpu_model = find_gpu_model(category.product.partition("-MIG-")[0].removesuffix("-SHARED"))
    # The image is pulled when its containers run.
    plan = WorkPlan(
        category.behaviour,
        seed,
        ranks,
        gpu_model.gpu_model if gpu_model else "H100",
        params={"pull_s": 1.0},
        first_rank=category.gpus * index if gang else 0,
        pod_ranks=category.gpus,
    )
    if category.behaviour not in FINITE or arrival.life_s == float("inf"):
        return plan
    life = arrival.life_s
    if category.behaviour == FINISHED_KEPT:
        life *= KEPT_FROM + (KEPT_TO - KEPT_FROM) * draw_uniform(arrival.seed, "kept")
    work_s = max(life * _compute_progress_rate(draw_numbers(plan)), LEAST_WORK_S)
    return msgspec.structs.replace(plan, work_s=work_s)


def _compute_progress_rate(values: dict[str, float]) -> float:
    """Return the progress per second over a lifetime, with starving, stragglers and checkpoints."""
    starved = values["input_share"]
    speed = values["straggle"] * (starved * values["input_speed"] + 1 - starved)
    interval_s = values["checkpoint_every_s"]
    if interval_s == float("inf"):
        return speed
    return speed * interval_s / (interval_s + values["checkpoint_s"] + values["wait_s"])
