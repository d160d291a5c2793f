"""A Deployment whose pods ask for more CPU than they use, and the kubelet that a test plays."""

from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from actions.loop.actor import Actor
from actions.plan import ActionPlan
from actions.policy.model import Stage
from actions.resize.requests import MEMORY
from fallow.action_models import CaseHistory, Decision, Facts
from tests.actions.loop import crashing
from tests.actions.loop import site as sites
from tests.actions.loop.site import (
    POLICY,
    SPACE,
    Object,
    Site,
)

RESIZES = msgspec.structs.replace(
    POLICY, stages=(*POLICY.stages[:-1], Stage("act", do=("resize",)))
)
MIB = 2**20
ASKED = {
    "resource": "memory",
    "ask": 512 * MIB,
    "used_p99": 100 * MIB,
    "used_peak": 200 * MIB,
    "capabilities": ["resize"],
    "allowed_namespaces": ["*"],
}


def decide(policy: Any, facts: Facts, spent: Any, now: datetime) -> Decision:
    made = sites.decide(policy, facts, spent, now)
    return msgspec.structs.replace(made, verb=MEMORY, parameters=ASKED)


def plan(policies: Any, facts: Any, spent: Any, now: datetime, histories: Any) -> ActionPlan:
    known = [(f, histories.get((policies[0].name, f.finding.id), CaseHistory())) for f in facts]
    made = [
        decide(policies[0], msgspec.structs.replace(f, history=h), spent, now) for f, h in known
    ]
    return ActionPlan(tuple(made), ())


def memory(site: Site) -> list[tuple[str, str]]:
    """Return request and limit of each pod, as the specs say."""
    found = [p["spec"]["containers"][0]["resources"] for p in site.pods()]
    return [(r["requests"]["memory"], r["limits"]["memory"]) for r in found]


def apply(site: Site) -> None:
    """Let the kubelet give containers what the specs ask for."""
    for pod in site.pods():
        container = pod["spec"]["containers"][0]
        tell(site, pod, resources=container["resources"])


def tell(site: Site, pod: Object, **said: Any) -> None:
    """Let the kubelet say something of a pod: a condition, or what its container has."""
    status = dict(pod["status"]["containerStatuses"][0])
    conditions = [c for c in pod["status"]["conditions"] if not c["type"].startswith("PodResize")]
    if "resources" in said:
        status["resources"] = said["resources"]
    if "condition" in said:
        conditions.append({"status": "True", **said["condition"]})
    body = {"status": {"containerStatuses": [status], "conditions": conditions}}
    name = pod["metadata"]["name"]
    site.store.patch("Pod", name, SPACE, body, subresource="status", manager="kubelet")


PARTS: dict[str, Any] = {"planner": plan, "decider": decide, "policies": [RESIZES]}


def actor(site: Site, **more: Any) -> Actor:
    return site.actor(**{**PARTS, **more})


def turn(url: str, folder: Path, now: datetime, idle: list[tuple[str, str]], step: int) -> None:
    """Do one turn in a process of its own and die at a step."""
    crashing.turn(url, folder, now, idle, step, **PARTS)
