"""Run the scheduler's turn: place pending pods, and evict for those that may preempt."""

from collections.abc import Callable
from typing import Any

from fallow.kube.objects import get_namespace, get_path, get_uid, has_ended, is_deleting, name
from simulator.cluster.hardware import Hardware
from simulator.cluster.objects import Object, is_live, set_conditions
from simulator.cluster.pending_queue import PendingQueue
from simulator.cluster.pod_requests import count_units, request
from simulator.cluster.preemption import Preemption, build_shape
from simulator.cluster.quotas.claims import Preempt, QuotaClaim, Refuse, Verdict
from simulator.cluster.quotas.elastic import ElasticQuota, ElasticQuotas
from simulator.cluster.scheduler.placing import place, place_gang
from simulator.cluster.scheduler.requests import Placement, PodGang, PodRequest, Policy, get_size
from simulator.cluster.store_writer import StoreWriter
from simulator.cluster.view import View
from simulator.models import Holder

ELASTIC = "ElasticQuota.scheduling.x-k8s.io"
GROUPS = ("PodGroup.scheduling.run.ai", "PodGroup.scheduling.volcano.sh")
SCHEDULER = "default-scheduler"


class Scheduling:
    """Pending pods, and the attempts to place them."""

    def __init__(
        self,
        view: View,
        writer: StoreWriter,
        hardware: Hardware,
        policy: Policy,
        holder: Callable[[Object], Holder],
    ) -> None:
        self._view, self._writer, self._hardware = view, writer, hardware
        self._policy, self._holder = policy, holder
        self._pending = PendingQueue()
        self._stirred = False
        self._full: set[tuple[object, ...]] = set()
        """The requests of gangs without room in this turn."""
        self._evictions = Preemption(view, hardware, policy, self._evict)
        self._elastic = ElasticQuotas([])
        self._quotas = False
        self._judged: dict[tuple[object, ...], tuple[str, Verdict]] = {}
        """The quota's verdict about such a pod; valid while no pod begins or ends."""

        self._helped: dict[tuple[object, ...], bool] = {}
        """Whether such pods would have room without these; valid for the same time."""

    def stir(self) -> None:
        """Try again: nodes have changed."""
        self._stirred = True
        self._evictions.clear()

    def notice(self, obj: Object, kind: str, *, deleted: bool) -> None:
        """See what changed."""
        if kind in {ELASTIC, *GROUPS}:
            self._stirred = True
            self._quotas = self._quotas or kind == ELASTIC
        if kind != "Pod":
            return
        spec = obj["spec"]
        waits = is_live(obj) and not deleted and not spec.get("nodeName")
        if waits and not spec.get("schedulingGates"):
            if get_uid(obj) not in self._pending:
                self._pending.add(request(obj))
                self._stirred = True
        else:
            self._pending.remove(get_uid(obj))
            self._pending.forget(get_uid(obj))
        if deleted or has_ended(obj):
            self._evictions.ended(obj)
            self._elastic.release(get_uid(obj))

    def run(self) -> None:
        """Place all pods that can be placed now."""
        if self._quotas:
            self._read_quotas()
        stirred = self._stirred or self._hardware.freed
        self._stirred = self._hardware.freed = False
        if not stirred or not self._pending:
            return
        min_members = {}
        for kind in GROUPS:
            for group in self._view.of(kind):
                key = f"{get_namespace(group)}/{name(group)}"
                min_members[key] = int(get_path(group, "spec", "minMember", default=0))
        failed: set[int] = set()
        self._full.clear()
        self._judged.clear()
        self._helped.clear()
        turn = self._pending.turn(min_members)
        while (entry := turn.step()) is not None:
            if entry.form in failed:
                self._wait(entry.gang)
            elif self._try(entry.gang):
                turn.go_on(entry)
            else:
                failed.add(entry.form)
        self._evictions.open_again()

    def _try(self, gang: PodGang) -> bool:
        if not self._within(gang):
            return True  # the quota refuses it, not its shape
        if len(gang.members) == 1 and not gang.members[0].gang:
            placement_found = place(gang.members[0], self._hardware.fleet, self._policy)
            placements: tuple[Placement, ...] | None = (
                None if placement_found is None else (placement_found,)
            )
        else:
            placements = self._together(gang)
        if placements is None:
            self._wait(gang)
            self._evictions.make_room(gang)
            return False
        requests = {member.uid: member for member in gang.members}
        for placement in placements:
            self._bind(requests[placement.uid], placement)
        return True

    def _together(self, gang: PodGang) -> tuple[Placement, ...] | None:
        """Place a gang, unless an equal one had no room in this turn: nothing became free since."""
        sizes = {get_size(member) for member in gang.members}
        # Members of several sizes may fit in less room than the room in which they did not fit.
        form = (gang.min_members, len(gang.members), sizes.pop()) if len(sizes) == 1 else None
        if form in self._full:
            return None
        placements = place_gang(gang, self._hardware.fleet, self._policy)
        if placements is None and form is not None:
            self._full.add(form)
        return placements

    def _bind(self, request: PodRequest, placement: Placement) -> None:
        pod = self._view.pods[request.uid]
        now = self._writer.now_s
        self._hardware.hold(request, placement, self._holder(pod), now)
        self._elastic.hold(self._claim(request, pod), now)
        self._judged.clear()
        self._helped.clear()
        self._pending.remove(request.uid)
        self._evictions.forget(request.uid)
        self._writer.store.bind(name(pod), get_namespace(pod), placement.node)
        where = f"Successfully assigned {request.name} to {placement.node}"
        self._writer.event(pod, "Scheduled", where, SCHEDULER)

    def _wait(self, gang: PodGang, why: str = "") -> None:
        """Report once why a gang's pods cannot be placed."""
        for member in gang.members:
            if not self._pending.tell(member.uid):
                continue
            pod = self._view.pods[member.uid]
            message = why or self._shortage(member)
            false = ("PodScheduled", False, "Unschedulable", message)
            now = self._writer.now_s
            self._writer.status(pod, {"conditions": set_conditions(pod, now, false)}, "")
            self._writer.event(pod, "FailedScheduling", message, SCHEDULER, "Warning")

    def _shortage(self, member: PodRequest) -> str:
        fleet = self._hardware.fleet
        may, _ = fleet.eligible(member)
        node_count, could = len(fleet.names), int((may & fleet.open).sum())
        shut = int((may & ~fleet.open).sum())
        resource = f"nvidia.com/mig-{member.profile}" if member.profile else "nvidia.com/gpu"
        parts = [
            (could, f"Insufficient {resource if member.gpus else 'cpu'}"),
            (shut, "node(s) were unschedulable"),
            (
                node_count - could - shut,
                "node(s) didn't match Pod's node affinity/selector or taints",
            ),
        ]
        reasons = ", ".join(f"{count} {text}" for count, text in parts if count)
        return f"0/{node_count} nodes are available: {reasons}."

    def _evict(self, victim: str, why: str) -> None:
        pod = self._view.pods.get(victim)
        if pod is None or is_deleting(pod):
            return
        condition = ("DisruptionTarget", True, "PreemptionByScheduler", why)
        now = self._writer.now_s
        self._writer.status(pod, {"conditions": set_conditions(pod, now, condition)}, "")
        self._writer.event(pod, "Preempted", why, SCHEDULER, "Warning")
        self._elastic.leaving(victim)
        self._writer.delete(pod)

    def _claim(self, request: PodRequest, pod: Object) -> QuotaClaim:
        uses = {"cpu": request.cpu_milli, "memory": request.memory_mib * 2**20}
        uses[f"nvidia.com/mig-{request.profile}" if request.profile else "nvidia.com/gpu"] = (
            request.gpus
        )
        return QuotaClaim(
            request.uid, get_namespace(pod), uses, request.priority, request.created_s
        )

    def _within(self, gang: PodGang) -> bool:
        """Return whether the ElasticQuota admits the pods; evict those that owe it quota."""
        for member in gang.members:
            pod = self._view.pods[member.uid]
            if get_namespace(pod) not in self._elastic.quotas:
                continue
            claim = self._claim(member, pod)
            verdict = self._verdict(claim)
            if isinstance(verdict, Refuse):
                self._wait(gang, verdict.message)
                return False
            if isinstance(verdict, Preempt):
                if not (member.preempts and self._would_help(gang, verdict.victims)):
                    self._wait(gang, "preemption is not helpful for scheduling")
                    return False
                if not self._elastic.rises_above(claim):
                    self._elastic.nominate(claim)
                for victim in verdict.victims:
                    self._evict(victim, f"Preempted by pod {member.uid}")
                self._wait(gang, "the pods that hold this quota are being preempted")
                return False
        return True

    def _would_help(self, gang: PodGang, victims: tuple[str, ...]) -> bool:
        """Return whether the pods would have room after those that owe them quota have ended.

        The plug-in tries nodes before it evicts, and pods that never preempt evict nobody.
        """
        key = (build_shape(gang), victims)
        if key not in self._helped:
            rest = self._hardware.fleet.copy()
            for victim in victims:
                if victim in rest.running:
                    rest.release(victim)
            self._helped[key] = place_gang(gang, rest, self._policy) is not None
        return self._helped[key]

    def _verdict(self, claim: QuotaClaim) -> Verdict:
        """Judge a claim; of a long queue with equal requests, only the first."""
        form = (claim.queue, claim.priority, *sorted(claim.uses.items()))
        if form not in self._judged:
            self._judged[form] = claim.uid, self._elastic.admit(claim)
        judged_uid, verdict = self._judged[form]
        if isinstance(verdict, Refuse):
            return Refuse(verdict.message.replace(judged_uid, claim.uid))
        return verdict

    def _read_quotas(self) -> None:
        self._quotas = False

        def amounts(obj: Object, field: str) -> dict[str, int]:
            values: dict[str, Any] = get_path(obj, "spec", field, default={})
            return {k: count_units(k, v) for k, v in values.items()}

        elastic_quotas = self._view.of(ELASTIC)
        self._elastic.configure(
            ElasticQuota(get_namespace(o), amounts(o, "min"), amounts(o, "max"))
            for o in elastic_quotas
        )
