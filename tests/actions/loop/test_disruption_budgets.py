"""Acts ask the cluster's disruption budgets: what was not read is unknown, and unknown holds."""

from typing import Any

import msgspec
import pytest

from actions.policy.model import Allow
from fallow.disruptions import CoveringBudget
from tests.actions.loop import site as sites
from tests.actions.loop.draining import budget
from tests.actions.loop.site import SPACE, Site

BUDGETS = "poddisruptionbudgets"


def act(site: Site, **changes: Any) -> tuple[str, str]:
    """Let the actor come to its act; return the result, and why it was not the act."""
    actor = site.actor(policies=[msgspec.structs.replace(site.policy, **changes)])
    site.told_and_waited(actor)
    (step,) = actor.turn(dry_run=False).steps
    return step.result, "; ".join(f"{r.gate}: {r.text}" for r in step.reasons)


@pytest.mark.parametrize("held_by", [(), ("*",)])
def test_budgets_that_may_not_be_listed_hold_the_act_and_no_policy_lifts_it(
    site: Site, held_by: tuple[str, ...]
) -> None:
    site.deployment()
    site.server.access.deny("list", BUDGETS)
    result, why = act(site, allow=Allow(held_by=held_by))
    assert result == "refused"
    assert "held: whether a disruption budget covers its pods is unknown" in why
    assert "let the actor list poddisruptionbudgets.policy in team-a" in why
    assert site.replicas() == 2
    assert not site.writes("/scale")


def test_a_cluster_without_budgets_is_acted_upon_as_ever(site: Site) -> None:
    site.deployment()
    assert act(site) == ("acted", "")
    assert site.replicas() == 0


@pytest.mark.parametrize(
    ("budgets", "result", "why"),
    [
        ((), "acted", ""),
        ((CoveringBudget("team-a/web", 2, 2),), "acted", ""),
        ((CoveringBudget("team-a/web", 1, 2),), "refused", "allows 1 of 2 disruptions"),
    ],
)
def test_where_the_actor_may_not_list_budgets_those_that_were_polled_decide(
    site: Site, budgets: tuple[CoveringBudget, ...], result: str, why: str
) -> None:
    site.deployment()
    site.server.access.deny("list", BUDGETS)
    site.evidence.changes["budgets"] = budgets
    outcome, text = act(site)
    assert outcome == result
    assert why in text


@pytest.mark.parametrize(
    ("replicas", "spec", "held_by", "result"),
    [
        (2, {"minAvailable": 1}, (), "refused"),
        (2, {"minAvailable": 1}, ("team-a/web",), "acted"),
        (2, {"minAvailable": 0}, (), "acted"),
        (2, {"maxUnavailable": "100%"}, (), "acted"),
        (2, {"maxUnavailable": "50%"}, (), "refused"),
        (1, {"maxUnavailable": 1}, (), "acted"),
        (1, {"minAvailable": 1}, (), "refused"),
    ],
)
def test_an_act_takes_at_most_the_pods_that_each_budget_lets_go(
    site: Site, replicas: int, spec: dict[str, Any], held_by: tuple[str, ...], result: str
) -> None:
    """MinAvailable 1 of 2: 2 - 1 = 1 disruption is allowed, and scaling to zero takes 2."""
    site.deployment(replicas=replicas)
    budget(site, **spec)
    outcome, why = act(site, allow=Allow(held_by=held_by))
    assert outcome == result
    assert site.replicas() == (replicas if result == "refused" else 0)
    assert ("held: held by PDB team-a/web: it allows" in why) == (result == "refused")


@pytest.mark.parametrize(
    ("selector", "result"),
    [
        ({"matchLabels": {"app": "web"}}, "refused"),
        ({}, "refused"),
        ({"matchLabels": {"app": "other"}}, "acted"),
    ],
)
def test_a_budget_that_was_just_made_and_not_counted_yet_holds_what_it_covers(
    site: Site, selector: dict[str, Any], result: str
) -> None:
    """The stored polls, of before, have no budget: what the API server lists decides."""
    site.deployment()
    site.evidence.changes["budgets"] = ()
    actor = site.actor(policies=[msgspec.structs.replace(site.policy, allow=Allow(held_by=("*",)))])
    site.told_and_waited(actor)
    site.make("PodDisruptionBudget", "new", {"maxUnavailable": 2, "selector": selector})
    site.store.patch("PodDisruptionBudget", "new", SPACE, {"status": None}, subresource="status")
    (step,) = actor.turn(dry_run=False).steps
    assert step.result == result
    if result == "refused":
        assert step.reasons[0].text == (
            "PDB team-a/new: how many disruptions it allows is not known"
        )


def test_a_budget_that_changed_after_it_was_counted_is_not_known(site: Site) -> None:
    site.deployment()
    budget(site, maxUnavailable=2)
    actor = site.actor()
    site.told_and_waited(actor)
    site.store.patch("PodDisruptionBudget", "web", SPACE, {"spec": {"maxUnavailable": 1}})
    (step,) = actor.turn(dry_run=False).steps
    assert step.result == "refused"
    assert "how many disruptions it allows is not known" in step.reasons[0].text


@pytest.mark.parametrize(("allowed", "result"), [(1, "refused"), (2, "acted")])
def test_fewer_replicas_take_the_pods_that_go_and_no_more(
    site: Site, monkeypatch: pytest.MonkeyPatch, allowed: int, result: str
) -> None:
    """4 replicas of a GPU each, of which 2 are enough: the act takes 4 - 2 = 2 pods."""
    monkeypatch.setitem(sites.VERBS, "Deployment", "ask for fewer GPUs")
    site.deployment(replicas=4)
    budget(site, maxUnavailable=allowed)
    parameters = {"capabilities": ["replicas"], "allowed_namespaces": ["*"], "fewer_gpus": 2}

    def decide(*given: Any) -> Any:
        return msgspec.structs.replace(sites.decide(*given), parameters=parameters)

    actor = site.actor(decider=decide)
    site.told_and_waited(actor)
    (step,) = actor.turn(dry_run=False).steps
    assert step.result == result, step
    assert site.replicas() == (4 if result == "refused" else 2)
