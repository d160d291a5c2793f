"""Those who change an object back: HPA, KEDA, and GitOps when told what Git says.

They act when their own period comes round, never at once, as the real ones do.
"""

from typing import Any

import msgspec

from simulator.cluster.alarms import Alarms
from simulator.cluster.clerk import Clerk, covers, replicas
from simulator.cluster.objects import Object, called, conditions, deep, name, namespace, words
from simulator.cluster.view import Key, View

HPA_PERIOD_S = 15.0
KEDA_PERIOD_S = 30.0
GITOPS_DELAY_S = 5.0
"""Argo CD heals a drift after five seconds (`--self-heal-timeout-seconds`)."""
DESIRED = "simulator.fallow/desired-replicas"
"""Annotation of an HPA or ScaledObject: what its metrics ask for now."""
PAUSED_AT, PAUSED = "autoscaling.keda.sh/paused-replicas", "autoscaling.keda.sh/paused"


class Tracked(msgspec.Struct):
    """What Git says of one object, who applies it, and how long it takes."""

    body: dict[str, Any]
    manager: str
    delay_s: float


class Rivals:
    """Everything that may undo what somebody else did."""

    def __init__(self, view: View, clerk: Clerk, alarms: Alarms) -> None:
        self._view, self._clerk, self._alarms = view, clerk, alarms
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

    def untrack(self, kind: str, namespace: str, name: str) -> None:
        """Let GitOps leave an object alone."""
        self._tracked.pop((kind, namespace, name), None)

    def notice(self, obj: Object) -> None:
        """See a changed object, and come back to it when the period is round."""
        kind = called(obj)
        key = (kind, namespace(obj), name(obj))
        now = self._clerk.now_s
        if key in self._tracked and not covers(self._tracked[key].body, obj):
            self._alarms.set(
                now + self._tracked[key].delay_s, ("gitops", key), lambda: self._revert(key)
            )
        if kind == "HorizontalPodAutoscaler":
            self._alarms.set(now + HPA_PERIOD_S, ("hpa", key), lambda: self._hpa(key))
        if kind == "ScaledObject":
            self._alarms.set(now + KEDA_PERIOD_S, ("keda", key), lambda: self._keda(key))
        if "replicas" in (obj.get("spec") or {}):
            for scaler in (
                *self._view.of("HorizontalPodAutoscaler", namespace(obj)),
                *self._view.of("ScaledObject", namespace(obj)),
            ):
                if _target(scaler) == key:
                    self.notice(scaler)

    def _revert(self, key: Key) -> None:
        obj, tracked = self._view.get(*key), self._tracked.get(key)
        if obj is not None and tracked is not None:
            self._clerk.patch(obj, tracked.body, tracked.manager)

    def _hpa(self, key: Key) -> None:
        scaler = self._view.get(*key)
        target = None if scaler is None else self._view.get(*_target(scaler))
        if scaler is None or target is None:
            return
        now, have = self._clerk.now_s, replicas(target)
        if have == 0:
            said = ("ScalingActive", False, "ScalingDisabled", "scaling is disabled: replicas is 0")
            self._clerk.status(scaler, {"conditions": conditions(scaler, now, said)}, "")
            return
        spec = scaler["spec"]
        asked = int(words(scaler, "annotations").get(DESIRED, have))
        wanted = min(max(asked, int(spec.get("minReplicas", 1))), int(spec["maxReplicas"]))
        self._scale(target, wanted, "kube-controller-manager")
        said = ("ScalingActive", True, "ValidMetricFound", "")
        status: Object = {"currentReplicas": have, "desiredReplicas": wanted}
        status |= {"conditions": conditions(scaler, now, said)}
        self._clerk.status(scaler, status, "")

    def _keda(self, key: Key) -> None:
        scaler = self._view.get(*key)
        target = None if scaler is None else self._view.get(*_target(scaler))
        if scaler is None or target is None:
            return
        notes, spec = words(scaler, "annotations"), scaler["spec"]
        if PAUSED_AT in notes:
            self._scale(target, int(notes[PAUSED_AT]), "keda")
            return
        if notes.get(PAUSED, "").lower() == "true":
            return
        least, most = int(spec.get("minReplicaCount", 0)), int(spec.get("maxReplicaCount", 100))
        asked = int(notes.get(DESIRED, replicas(target)))
        self._scale(target, min(max(asked, least), most), "keda")

    def _scale(self, target: Object, count: int, manager: str) -> None:
        if replicas(target) != count:
            self._clerk.patch(target, {"spec": {"replicas": count}}, manager)


def _target(scaler: Object) -> Key:
    reference = deep(scaler, "spec", "scaleTargetRef", default={})
    return (reference.get("kind", "Deployment"), namespace(scaler), reference.get("name", ""))
