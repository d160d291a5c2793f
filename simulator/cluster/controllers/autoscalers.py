"""Simulate controllers that revert changes: HPA, KEDA, and GitOps with a given Git state.

They act at their own period, never immediately, as the real ones do.
"""

from typing import Any

import msgspec

from fallow.kube.objects import get_annotations, get_namespace, get_path, name
from simulator.cluster.objects import Object, get_kind, set_conditions
from simulator.cluster.store_writer import StoreWriter, get_replicas, is_covered
from simulator.cluster.timers import Timers
from simulator.cluster.view import Key, View

HPA_PERIOD_S = 15.0
KEDA_PERIOD_S = 30.0
GITOPS_DELAY_S = 5.0
"""Argo CD corrects a drift after five seconds (`--self-heal-timeout-seconds`)."""
DESIRED = "simulator.fallow/desired-replicas"
"""Annotation of an HPA or ScaledObject: the replicas that its metrics require now."""
PAUSED_AT, PAUSED = "autoscaling.keda.sh/paused-replicas", "autoscaling.keda.sh/paused"


class Tracked(msgspec.Struct):
    """The Git state of one object, its field manager, and the delay of a correction."""

    body: dict[str, Any]
    manager: str
    delay_s: float


class Autoscalers:
    """All controllers that may undo a change of another client."""

    def __init__(self, view: View, writer: StoreWriter, alarms: Timers) -> None:
        self._view, self._writer, self._alarms = view, writer, alarms
        self._tracked: dict[Key, Tracked] = {}

    def track(
        self,
        kind: str,
        namespace: str,
        name: str,
        body: dict[str, Any],
        *,
        manager: str = "argocd-controller",
        delay_s: float = GITOPS_DELAY_S,
    ) -> None:
        """Let GitOps keep these fields of an object as they are here."""
        self._tracked[kind, namespace, name] = Tracked(body, manager, delay_s)

    def notice(self, obj: Object) -> None:
        """Process a changed object, and check it again at the next period."""
        kind = get_kind(obj)
        key = (kind, get_namespace(obj), name(obj))
        now = self._writer.now_s
        if key in self._tracked and not is_covered(self._tracked[key].body, obj):
            self._alarms.set(
                now + self._tracked[key].delay_s, ("gitops", key), lambda: self._revert(key)
            )
        if kind == "HorizontalPodAutoscaler":
            self._alarms.set(now + HPA_PERIOD_S, ("hpa", key), lambda: self._hpa(key))
        if kind == "ScaledObject":
            self._alarms.set(now + KEDA_PERIOD_S, ("keda", key), lambda: self._keda(key))
        if "replicas" in (obj.get("spec") or {}):
            for scaler in (
                *self._view.of("HorizontalPodAutoscaler", get_namespace(obj)),
                *self._view.of("ScaledObject", get_namespace(obj)),
            ):
                if _find_target(scaler) == key:
                    self.notice(scaler)

    def _revert(self, key: Key) -> None:
        obj, tracked = self._view.get(*key), self._tracked.get(key)
        if obj is not None and tracked is not None:
            self._writer.patch(obj, tracked.body, tracked.manager)

    def _hpa(self, key: Key) -> None:
        scaler = self._view.get(*key)
        target = None if scaler is None else self._view.get(*_find_target(scaler))
        if scaler is None or target is None:
            return
        now, current = self._writer.now_s, get_replicas(target)
        if current == 0:
            condition = (
                "ScalingActive",
                False,
                "ScalingDisabled",
                "scaling is disabled: replicas is 0",
            )
            self._writer.status(scaler, {"conditions": set_conditions(scaler, now, condition)}, "")
            return
        spec = scaler["spec"]
        desired = int(get_annotations(scaler).get(DESIRED, current))
        wanted = min(max(desired, int(spec.get("minReplicas", 1))), int(spec["maxReplicas"]))
        self._scale(target, wanted, "kube-controller-manager")
        condition = ("ScalingActive", True, "ValidMetricFound", "")
        status: Object = {"currentReplicas": current, "desiredReplicas": wanted}
        status |= {"conditions": set_conditions(scaler, now, condition)}
        self._writer.status(scaler, status, "")

    def _keda(self, key: Key) -> None:
        scaler = self._view.get(*key)
        target = None if scaler is None else self._view.get(*_find_target(scaler))
        if scaler is None or target is None:
            return
        notes, spec = get_annotations(scaler), scaler["spec"]
        if PAUSED_AT in notes:
            self._scale(target, int(notes[PAUSED_AT]), "keda")
            return
        if notes.get(PAUSED, "").lower() == "true":
            return
        minimum, maximum = (
            int(spec.get("minReplicaCount", 0)),
            int(spec.get("maxReplicaCount", 100)),
        )
        desired = int(notes.get(DESIRED, get_replicas(target)))
        self._scale(target, min(max(desired, minimum), maximum), "keda")

    def _scale(self, target: Object, count: int, manager: str) -> None:
        if get_replicas(target) != count:
            self._writer.patch(target, {"spec": {"replicas": count}}, manager)


def _find_target(scaler: Object) -> Key:
    reference = get_path(scaler, "spec", "scaleTargetRef", default={})
    return (reference.get("kind", "Deployment"), get_namespace(scaler), reference.get("name", ""))
