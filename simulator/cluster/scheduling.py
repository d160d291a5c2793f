"""The scheduler's turn: pending pods to nodes, and evictions for those that may preempt."""

from collections.abc import Callable
from typing import Any

from simulator.cluster.asks import request, units
from simulator.cluster.clerk import Clerk
from simulator.cluster.evictions import Evictions, shape
from simulator.cluster.hardware import Hardware
from simulator.cluster.line import Line
from simulator.cluster.objects import (
    Object,
    conditions,
    deep,
    going,
    live,
    name,
    namespace,
    over,
    uid,
)
from simulator.cluster.quotas.claims import Claim, Preempt, Refuse, Verdict
from simulator.cluster.quotas.elastic import ElasticQuota, ElasticQuotas
from simulator.cluster.scheduler.placing import place, place_gang
from simulator.cluster.scheduler.requests import Gang, Placement, PodRequest, Policy, size
from simulator.cluster.view import View
from simulator.nouns import Holder

ELASTIC = "ElasticQuota.scheduling.x-k8s.io"
GROUPS = ("PodGroup.scheduling.run.ai", "PodGroup.scheduling.volcano.sh")
SCHEDULER = "default-scheduler"


class Scheduling:
    """Pods that wait, and what was tried for them."""

    def __init__(
        self,
        view: View,
        clerk: Clerk,
        hardware: Hardware,
        policy: Policy,
        holder: Callable[[Object], Holder],
    ) -> None:
        self._view, self._clerk, self._hardware = view, clerk, hardware
        self._policy, self._holder = policy, holder
        self._pending = Line()
        self._stirred = False
        self._full: set[tuple[object, ...]] = set()
        """What gangs asked for in this turn that had no room."""
        self._evictions = Evictions(view, hardware, policy, self._evict)
        self._elastic = ElasticQuotas([])
        self._quotas = False
        self._judged: dict[tuple[object, ...], tuple[str, Verdict]] = {}
        """What the quota said to such a pod, and to which; holds while nobody begins or ends."""

        self._helped: dict[tuple[object, ...], bool] = {}
        """Whether such pods would have room without these; for as long."""

    def stir(self) -> None:
        """Try again: nodes have changed."""
        self._stirred = True
        self._evictions.clear()

    def notice(self, obj: Object, kind: str, *, gone: bool) -> None:
        """See what changed."""
        if kind in {ELASTIC, *GROUPS}:
            self._stirred = True
            self._quotas = self._quotas or kind == ELASTIC
        if kind != "Pod":
            return
        spec = obj["spec"]
        waits = live(obj) and not gone and not spec.get("nodeName")
        if waits and not spec.get("schedulingGates"):
            if uid(obj) not in self._pending:
                self._pending.add(request(obj))
                self._stirred = True
        else:
            self._pending.remove(uid(obj))
            self._pending.forget(uid(obj))
        if gone or over(obj):
            self._evictions.ended(obj)
            self._elastic.release(uid(obj))

    def run(self) -> None:
        """Place what can be placed now."""
        if self._quotas:
            self._read_quotas()
        stirred = self._stirred or self._hardware.freed
        self._stirred = self._hardware.freed = False
        if not stirred or not self._pending:
            return
        least = {}
        for kind in GROUPS:
            for group in self._view.of(kind):
                key = f"{namespace(group)}/{name(group)}"
                least[key] = int(deep(group, "spec", "minMember", default=0))
        failed: set[int] = set()
        self._full.clear()
        self._judged.clear()
        self._helped.clear()
        turn = self._pending.turn(least)
        while (one := turn.step()) is not None:
            if one.form in failed:
                self._wait(one.gang)
            elif self._try(one.gang):
                turn.go_on(one)
            else:
                failed.add(one.form)
        self._evictions.open_again()

    def _try(self, one: Gang) -> bool:
        if not self._within(one):
            return True  # its quota, not its shape, is what fails
        if len(one.members) == 1 and not one.members[0].gang:
            found = place(one.members[0], self._hardware.fleet, self._policy)
            placed: tuple[Placement, ...] | None = None if found is None else (found,)
        else:
            placed = self._together(one)
        if placed is None:
            self._wait(one)
            self._evictions.make_room(one)
            return False
        asked = {member.uid: member for member in one.members}
        for placement in placed:
            self._bind(asked[placement.uid], placement)
        return True

    def _together(self, one: Gang) -> tuple[Placement, ...] | None:
        """Place a gang, unless one like it had no room in this turn: nothing became free since."""
        sizes = {size(member) for member in one.members}
        # Members of several sizes may fit in less room than they did not fit in.
        form = (one.min_members, len(one.members), sizes.pop()) if len(sizes) == 1 else None
        if form in self._full:
            return None
        placed = place_gang(one, self._hardware.fleet, self._policy)
        if placed is None and form is not None:
            self._full.add(form)
        return placed

    def _bind(self, asked: PodRequest, placement: Placement) -> None:
        pod = self._view.pods[asked.uid]
        now = self._clerk.now_s
        self._hardware.hold(asked, placement, self._holder(pod), now)
        self._elastic.hold(self._claim(asked, pod), now)
        self._judged.clear()
        self._helped.clear()
        self._pending.remove(asked.uid)
        self._evictions.forget(asked.uid)
        self._clerk.store.bind(name(pod), namespace(pod), placement.node)
        where = f"Successfully assigned {asked.name} to {placement.node}"
        self._clerk.event(pod, "Scheduled", where, SCHEDULER)

    def _wait(self, one: Gang, why: str = "") -> None:
        """Say once why a gang's pods cannot be placed."""
        for member in one.members:
            if not self._pending.tell(member.uid):
                continue
            pod = self._view.pods[member.uid]
            said = why or self._shortage(member)
            false = ("PodScheduled", False, "Unschedulable", said)
            now = self._clerk.now_s
            self._clerk.status(pod, {"conditions": conditions(pod, now, false)}, "")
            self._clerk.event(pod, "FailedScheduling", said, SCHEDULER, "Warning")

    def _shortage(self, member: PodRequest) -> str:
        fleet = self._hardware.fleet
        may, _ = fleet.eligible(member)
        every, could = len(fleet.names), int((may & fleet.open).sum())
        shut = int((may & ~fleet.open).sum())
        what = f"nvidia.com/mig-{member.profile}" if member.profile else "nvidia.com/gpu"
        parts = [
            (could, f"Insufficient {what if member.gpus else 'cpu'}"),
            (shut, "node(s) were unschedulable"),
            (every - could - shut, "node(s) didn't match Pod's node affinity/selector or taints"),
        ]
        said = ", ".join(f"{count} {text}" for count, text in parts if count)
        return f"0/{every} nodes are available: {said}."

    def _evict(self, victim: str, why: str) -> None:
        pod = self._view.pods.get(victim)
        if pod is None or going(pod):
            return
        said = ("DisruptionTarget", True, "PreemptionByScheduler", why)
        now = self._clerk.now_s
        self._clerk.status(pod, {"conditions": conditions(pod, now, said)}, "")
        self._clerk.event(pod, "Preempted", why, SCHEDULER, "Warning")
        self._elastic.leaving(victim)
        self._clerk.delete(pod)

    def _claim(self, asked: PodRequest, pod: Object) -> Claim:
        uses = {"cpu": asked.cpu_milli, "memory": asked.memory_mib * 2**20}
        uses[f"nvidia.com/mig-{asked.profile}" if asked.profile else "nvidia.com/gpu"] = asked.gpus
        return Claim(asked.uid, namespace(pod), uses, asked.priority, asked.created_s)

    def _within(self, one: Gang) -> bool:
        """Say whether the ElasticQuota lets the pods in; evict those who owe it their place."""
        for member in one.members:
            pod = self._view.pods[member.uid]
            if namespace(pod) not in self._elastic.quotas:
                continue
            claim = self._claim(member, pod)
            verdict = self._verdict(claim)
            if isinstance(verdict, Refuse):
                self._wait(one, verdict.message)
                return False
            if isinstance(verdict, Preempt):
                if not (member.preempts and self._would_help(one, verdict.victims)):
                    self._wait(one, "preemption is not helpful for scheduling")
                    return False
                if not self._elastic.rises_above(claim):
                    self._elastic.nominate(claim)
                for victim in verdict.victims:
                    self._evict(victim, f"Preempted by pod {member.uid}")
                self._wait(one, "the pods that hold this quota are being preempted")
                return False
        return True

    def _would_help(self, one: Gang, victims: tuple[str, ...]) -> bool:
        """Say whether the pods would have room once those that owe them quota are gone.

        The plug-in tries nodes before it evicts, and pods that never preempt evict nobody.
        """
        known = (shape(one), victims)
        if known not in self._helped:
            rest = self._hardware.fleet.copy()
            for victim in victims:
                if victim in rest.running:
                    rest.release(victim)
            self._helped[known] = place_gang(one, rest, self._policy) is not None
        return self._helped[known]

    def _verdict(self, claim: Claim) -> Verdict:
        """Judge a claim; of a long line that asks for the same, only the first."""
        form = (claim.queue, claim.priority, *sorted(claim.uses.items()))
        if form not in self._judged:
            self._judged[form] = claim.uid, self._elastic.admit(claim)
        told, verdict = self._judged[form]
        if isinstance(verdict, Refuse):
            return Refuse(verdict.message.replace(told, claim.uid))
        return verdict

    def _read_quotas(self) -> None:
        self._quotas = False

        def amounts(obj: Object, field: str) -> dict[str, int]:
            given: dict[str, Any] = deep(obj, "spec", field, default={})
            return {k: units(k, v) for k, v in given.items()}

        every = self._view.of(ELASTIC)
        self._elastic.configure(
            ElasticQuota(namespace(o), amounts(o, "min"), amounts(o, "max")) for o in every
        )
