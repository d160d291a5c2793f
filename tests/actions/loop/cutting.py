"""A node whose boards are to be cut again, and the mig-manager that a test plays."""

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
from tests.actions.loop.site import POLICY, Site

NODE = "h100-0"
LAYOUT, STATE = "nvidia.com/mig.config", "nvidia.com/mig.config.state"
OLD, NEW = "all-disabled", "all-1g.10gb"
CUTS = msgspec.structs.replace(POLICY, stages=(*POLICY.stages[:-1], Stage("act", do=("mig",))))
ASKED = {"mig_config": NEW, "processes": 0, "capabilities": ["mig"], "allowed_namespaces": ["*"]}
sites.GROUPS |= {"Node": "", "NodePool": "karpenter.sh"}
sites.VERBS |= {"NodePool": "scale in pool"}


def decide(policy: Any, facts: Facts, spent: Any, now: datetime) -> Decision:
    made = sites.decide(policy, facts, spent, now)
    return msgspec.structs.replace(made, parameters=ASKED)


def plan(policies: Any, facts: Any, spent: Any, now: datetime, histories: Any) -> ActionPlan:
    known = [(f, histories.get((policies[0].name, f.finding.id), CaseHistory())) for f in facts]
    made = [
        decide(policies[0], msgspec.structs.replace(f, history=h), spent, now) for f, h in known
    ]
    return ActionPlan(tuple(made), ())


def node(site: Site) -> str:
    """Give a node the labels of mig-manager, and name it as one to be cut again."""
    name: str = site.store.list("Node")[0]["metadata"]["name"]
    labels(site, name, **{LAYOUT: OLD, STATE: "success"})
    site.evidence.idle.append(("Node", name))
    return name


def labels(site: Site, name: str, **said: str) -> None:
    body = {"metadata": {"labels": said}}
    site.store.patch("Node", name, "", body, manager="nvidia-mig-manager")


def managed(site: Site, name: str, word: str = "success") -> None:
    """Let mig-manager cut the boards, if it is asked to."""
    if shown(site, name)[1] == "pending":
        labels(site, name, **{STATE: word})


def shown(site: Site, name: str) -> tuple[str, str, bool]:
    """Return layout, state and cordon of a node."""
    found = site.store.get("Node", name)
    assert found is not None
    answer = found["metadata"]["labels"]
    return answer.get(LAYOUT, ""), answer.get(STATE, ""), bool(found["spec"].get("unschedulable"))


PARTS: dict[str, Any] = {"planner": plan, "decider": decide, "policies": [CUTS]}


def actor(site: Site, **more: Any) -> Actor:
    return site.actor(**{**PARTS, **more})


def turn(url: str, folder: Path, now: datetime, idle: list[tuple[str, str]], step: int) -> None:
    """Do one turn in a process of its own and die at a step."""
    crashing.turn(url, folder, now, idle, step, **PARTS)
