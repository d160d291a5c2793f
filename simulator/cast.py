"""Who plays what: the scripts of all pods, from the arrivals that they belong to.

A pod's script begins when its containers run (a gang's, when all of them do); until then it is
pulling its image. An interrupted job goes on from its last checkpoint.
"""

from collections.abc import Iterable

import msgspec

from fallow.gpu_models import canonical
from simulator.arrivals import Arrival
from simulator.nouns import Holder
from simulator.work.behaviours import Plan, Script, resume, script
from simulator.work.chance import drawn
from simulator.work.plans import numbers

Key = tuple[str, str, str]
"""Kind, namespace and name of a workload's topmost owner."""

GANGS = {"PyTorchJob"}
"""Kinds whose pods are the ranks of one job."""
KEPT = "finished but kept"
FINITE = {"training", "fp32 training", "straggling training", "input-bound training",
          "preparing training", "idle rank", "batch", KEPT}  # fmt: skip
KEPT_FROM, KEPT_TO = 0.2, 0.7
"""What is finished and kept has worked for such a part of its life."""
PULLING_S = 1e12
LEAST_WORK_S = 60.0


class Part(msgspec.Struct):
    """One pod's place in a workload."""

    uid: str
    begun: bool = False


class Role:
    """One workload: its plan, its pods, and the scripts they follow."""

    def __init__(self, arrival: Arrival) -> None:
        self.arrival = arrival
        self.plans = [_plan(arrival, place) for place in range(arrival.category.replicas)]
        self.gang = arrival.category.kind in GANGS and arrival.category.replicas > 1
        self.parts: dict[int, Part] = {}
        """Pods that hold devices, by their place."""
        self.running: dict[int, Script] = {}
        self.since_s: float | None = None
        """When it first ran."""
        self.counted = False
        """Its owner knows when to take it away, if ever."""

    def place(self, holder: Holder) -> int:
        """Return the place of a new pod: a rank by its name, else the first that is vacant."""
        if self.arrival.category.kind in GANGS:
            _, _, tail = holder.pod.removeprefix(f"{self.arrival.name}-").rpartition("-")
            return 0 if "-master-" in holder.pod else 1 + int(tail)
        return next(n for n in range(len(self.plans) + 1) if n not in self.parts)

    @property
    def ends(self) -> bool:
        """Whether its work is done some day: a job that neither hangs nor is kept."""
        behaviour = self.arrival.category.behaviour
        return behaviour in FINITE and behaviour != KEPT

    @property
    def complete(self) -> bool:
        """Whether all ranks of a gang run."""
        return len(self.parts) == len(self.plans) and all(p.begun for p in self.parts.values())


class Cast:
    """All workloads by key, and the script of every pod by uid."""

    def __init__(self) -> None:
        self.roles: dict[Key, Role] = {}
        self.scripts: dict[str, Script] = {}
        self._of: dict[str, tuple[Role, int]] = {}

    def add(self, arrival: Arrival) -> Role:
        """Learn of a workload that somebody has brought."""
        category = arrival.category
        role = Role(arrival)
        self.roles[category.kind, category.namespace, arrival.name] = role
        return role

    def role(self, pod_uid: str) -> Role | None:
        """Return the workload of a pod that holds devices."""
        found = self._of.get(pod_uid)
        return None if found is None else found[0]

    def runs(self, pod_uid: str) -> bool:
        """Say whether a pod that holds devices follows its own script already."""
        found = self._of.get(pod_uid)
        return found is not None and found[0].parts[found[1]].begun

    def hold(self, holder: Holder, now_s: float) -> bool:
        """See a pod get devices; say whether it belongs to anybody known."""
        role = self.roles.get((holder.workload_kind, holder.namespace, holder.workload))
        if role is None:
            return False
        place = role.place(holder)
        if place >= len(role.plans):
            role.plans.append(_plan(role.arrival, place))
        if place in role.parts:
            # A rank whose predecessor is still being taken away.
            self.end(role.parts[place].uid, now_s)
        role.parts[place] = Part(holder.uid)
        self._of[holder.uid] = (role, place)
        self.scripts[holder.uid] = _pulling(role.plans[place], now_s)
        return True

    def begin(self, pod_uid: str, now_s: float) -> list[tuple[str, float]]:
        """Let a pod run; return the pods whose work will be done, and when."""
        if pod_uid not in self._of:
            return []
        role, place = self._of[pod_uid]
        role.parts[place].begun = True
        if role.gang and not role.complete:
            return []
        role.since_s = now_s if role.since_s is None else role.since_s
        places = list(role.parts) if role.gang else [place]
        ends = []
        for n in places:
            made = script(role.plans[n], now_s)
            role.running[n] = self.scripts[role.parts[n].uid] = made
            if made.done_s is not None:
                ends.append((role.parts[n].uid, made.done_s))
        return ends

    def end(self, pod_uid: str, now_s: float) -> list[str]:
        """See a pod lose its devices; return the other ranks, which cannot go on without it."""
        found = self._of.pop(pod_uid, None)
        if found is None:
            return []
        role, place = found
        role.parts.pop(place, None)
        ran = role.running.pop(place, None)
        if ran is None:
            return []
        done = ran.done_s is not None and ran.done_s <= now_s
        if done:
            return []
        role.plans[place] = resume(ran, now_s)
        others = [p.uid for p in role.parts.values()] if role.gang else []
        for n, other in list(role.running.items()) if role.gang else ():
            role.plans[n] = resume(other, now_s)
            del role.running[n]
        return others

    def forget(self, kept: Iterable[str]) -> None:
        """Drop the scripts of pods that nobody asks for any more."""
        wanted = {*kept, *self._of}
        self.scripts = {uid: s for uid, s in self.scripts.items() if uid in wanted}


def _pulling(plan: Plan, now_s: float) -> Script:
    return script(_told(plan, pull_s=PULLING_S), now_s)


def _told(plan: Plan, **params: float) -> Plan:
    return msgspec.structs.replace(plan, params={**plan.params, **params})


def _plan(arrival: Arrival, place: int) -> Plan:
    """Return what one pod of an arrival does, from its first start on."""
    category = arrival.category
    gang = category.kind in GANGS
    seed = arrival.seed if gang else arrival.seed + place
    ranks = category.gpus * category.replicas if gang else category.gpus
    known = canonical(category.product.partition("-MIG-")[0].removesuffix("-SHARED"))
    # The image is there when its containers run.
    plan = Plan(
        category.behaviour,
        seed,
        ranks,
        known.gpu_model if known else "H100",
        params={"pull_s": 1.0},
        first_rank=category.gpus * place if gang else 0,
        pod_ranks=category.gpus,
    )
    if category.behaviour not in FINITE or arrival.life_s == float("inf"):
        return plan
    life = arrival.life_s
    if category.behaviour == KEPT:
        life *= KEPT_FROM + (KEPT_TO - KEPT_FROM) * drawn(arrival.seed, "kept")
    work_s = max(life * _pace(numbers(plan)), LEAST_WORK_S)
    return msgspec.structs.replace(plan, work_s=work_s)


def _pace(of: dict[str, float]) -> float:
    """Return the progress per second of a life: starved, straggling and saving in between."""
    starved = of["input_share"]
    speed = of["straggle"] * (starved * of["input_speed"] + 1 - starved)
    every = of["checkpoint_every_s"]
    if every == float("inf"):
        return speed
    return speed * every / (every + of["checkpoint_s"] + of["wait_s"])
