"""The evidence and the policy of the canary: its own Deployment, as the API server shows it now.

The gates of telemetry have nothing to judge, because the canary has no GPU, and it counts in no
budget. Every other gate is that of any action: lease, freeze, identity, scope, protections,
obstacles, dry run, journal.
"""

from collections.abc import Sequence
from datetime import datetime
from decimal import Decimal

from actions.canary.deployment import KIND, read_deployment
from actions.journal.action_state import CANARY
from actions.loop.protocols import ClusterClient
from actions.loop.recheck import Recheck
from actions.policy.budgets import BudgetUsage
from actions.policy.model import Allow, Policy, Stage
from fallow.action_models import Decision, Facts, Reason, compute_decision_id
from fallow.kube.objects import get_metadata, get_uid
from fallow.models import Finding, Recommendation, Subject
from fallow.settings.actions import CanarySettings
from fallow.window import Window

VERB, CAPABILITY = "scale to zero", "scale"


class CanaryEvidence:
    """One case: the canary's Deployment; see `actions.loop.protocols.EvidenceSource`."""

    def __init__(self, cluster: ClusterClient, settings: CanarySettings) -> None:
        self._cluster, self._settings = cluster, settings

    def read_sources(self, now: datetime) -> None:
        """Read nothing: each call reads the API server."""

    def cases(self, now: datetime) -> Sequence[Facts]:
        """Return the Deployment's facts, if there is one."""
        obj = read_deployment(self._cluster, self._settings)
        if obj is None:
            return ()
        settings, cluster = self._settings, self._cluster.name
        advice = Recommendation(
            verb=VERB,
            target=f"{KIND}/{settings.namespace}/{settings.name}",
            why="the canary proves that acting works",
            reversible=True,
        )
        finding = Finding(
            id=CANARY,
            analyzer=CANARY,
            kind=CANARY,
            subject=Subject(cluster, settings.namespace, KIND, settings.name),
            window=Window(now - settings.every, now),
            verdict="idle",
            evidence="confirmed",
            confidence=1.0,
            gpu_hours=0.0,
            usd=Decimal(0),
            details={},
        )
        return (
            Facts(
                finding=finding,
                recommendation=advice,
                at=now,
                gpus=0.0,
                uid=get_uid(obj),
                generation=get_metadata(obj).get("generation"),
                seen_until=now,
                budgets=(),  # its namespace is Fallow's own; where they may be listed, that decides
            ),
        )

    def again(self, facts: Facts, now: datetime) -> Facts | None:
        """Read the Deployment again."""
        del facts
        return next(iter(self.cases(now)), None)

    def recheck(self, facts: Facts, now: datetime) -> Recheck:
        """Return no reason: the Deployment serves nobody."""
        del facts, now
        return Recheck()

    def fleet(self, now: datetime) -> BudgetUsage:
        """Return a fleet of unknown size: the canary counts in no budget."""
        del now
        return BudgetUsage()

    def incident(self, now: datetime) -> str | None:
        """Return no incident."""
        del now
        return None


def build_policy(settings: CanarySettings) -> Policy:
    """Return the canary's policy as the journal stores it: this Deployment's namespace alone."""
    return Policy(
        name=CANARY,
        description="stop and restore the canary's own Deployment",
        mode="enforce",
        allow=Allow(namespaces=(settings.namespace,), kinds=(KIND,)),
        stages=(Stage("act", do=(CAPABILITY,)),),
    )


def decide_canary(policy: Policy, facts: Facts, usage: BudgetUsage, now: datetime) -> Decision:
    """Return the decision to stop the canary; a keep, a snooze or an open action holds it."""
    del usage
    reasons = []
    if facts.history.open_action:
        reasons.append(Reason("open", f"action {facts.history.open_action} is under way"))
    kept_until = facts.history.kept_until
    if kept_until is not None and kept_until > now:
        reasons.append(Reason("keep", f"it is kept until {kept_until:%Y-%m-%d %H:%M} UTC"))
    subject = facts.finding.subject
    return Decision(
        id=compute_decision_id(policy.name, facts.finding.id, "act"),
        policy=policy.name,
        finding=facts.finding.id,
        subject=(subject.cluster, subject.workload_kind, subject.namespace, subject.workload),
        verb=VERB,
        step="act",
        ruling="hold" if reasons else "allow",
        reasons=tuple(reasons),
        at=now,
        uid=facts.uid,
        generation=facts.generation,
        seen_until=facts.seen_until,
        parameters={
            "capabilities": [CAPABILITY],
            "allowed_namespaces": list(policy.allow.namespaces),
        },
    )
