"""A node with an idle Deployment's pods that is to be drained, on the API stub or a real server."""

import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from actions.loop.actor import Actor
from actions.plan import ActionPlan
from actions.policy.model import Stage
from fallow.action_models import CaseHistory, Decision, Facts
from tests.actions.loop import crashing
from tests.actions.loop import site as sites
from tests.actions.loop.control_plane import RealSite
from tests.actions.loop.site import (
    POLICY,
    Site,
    bare,
)

SICK, OTHER = "h100-0", "a100-0"
DRAINS = msgspec.structs.replace(POLICY, stages=(*POLICY.stages[:-1], Stage("act", do=("drain",))))
ASKED = {"capabilities": ["drain"], "allowed_namespaces": ["*"], "why": "XID 79 twice"}
sites.GROUPS["Node"] = ""


def decide(policy: Any, facts: Facts, spent: Any, now: datetime) -> Decision:
    made = sites.decide(policy, facts, spent, now)
    return msgspec.structs.replace(made, parameters=ASKED, verb="recycle node")


def plan(policies: Any, facts: Any, spent: Any, now: datetime, histories: Any) -> ActionPlan:
    known = [(f, histories.get((policies[0].name, f.finding.id), CaseHistory())) for f in facts]
    made = [
        decide(policies[0], msgspec.structs.replace(f, history=h), spent, now) for f, h in known
    ]
    return ActionPlan(tuple(made), ())


PARTS: dict[str, Any] = {"planner": plan, "decider": decide, "policies": [DRAINS]}


def actor(site: Site, **more: Any) -> Actor:
    return site.actor(**{**PARTS, **more})


def turn(url: str, folder: Path, now: datetime, idle: list[tuple[str, str]], step: int) -> None:
    """Do one turn in a process of its own and die at a step."""
    crashing.turn(url, folder, now, idle, step, node_verb="recycle node", **PARTS)


def loaded(site: Site, replicas: int = 2, name: str = "web") -> dict[str, Any]:
    """Put a Deployment's pods on the sick node, name that node, and return it bare."""
    shut(site, OTHER, closed=True)
    site.deployment(name, replicas)
    shut(site, OTHER, closed=False)
    site.evidence.idle = [("Node", SICK)]
    site.evidence.node_verb = "recycle node"
    assert {p["spec"]["nodeName"] for p in site.pods()} == {SICK}
    return bare(site.get("Node", SICK, ""))


def shut(site: Site, node: str, *, closed: bool) -> None:
    """Cordon a node as an operator would, or let pods in again, and wait for its controller."""
    body = {"spec": {"unschedulable": True if closed else None}}
    if isinstance(site, RealSite):
        site.patch("Node", node, body, manager="kubectl-cordon")
    else:
        site.store.patch("Node", node, "", body, manager="kubectl-cordon")
    until(site, lambda: is_tainted(site, node) == closed)


def is_tainted(site: Site, node: str) -> bool:
    """Tell whether the node-lifecycle controller's taint of a cordon is there."""
    taints = site.get("Node", node, "")["spec"].get("taints") or ()
    return any(t["key"] == "node.kubernetes.io/unschedulable" for t in taints)


def is_cordoned(site: Site, node: str = SICK) -> bool:
    return bool(site.get("Node", node, "")["spec"].get("unschedulable"))


def budget(site: Site, name: str = "web", **spec: Any) -> None:
    """Make a disruption budget of a Deployment, and wait until its status is written."""
    labels = {"matchLabels": {"app": name}}
    site.make("PodDisruptionBudget", name, {"selector": labels, **spec})
    until(site, lambda: bool(site.get("PodDisruptionBudget", name)["status"].get("currentHealthy")))


def until(site: Site, true: Callable[[], bool]) -> None:
    """Wait until it is so: the stub's controllers write when it comes to rest, real ones alone."""
    deadline = time.monotonic() + 20
    site.settle()
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def on(site: Site, node: str) -> list[str]:
    """Return the names of the pods of a node."""
    return [p["metadata"]["name"] for p in site.pods() if p["spec"].get("nodeName") == node]
