"""An executor cannot go further than the policy said, whatever it intends."""

import msgspec
import pytest

from actions.decide import decide
from actions.policy.bounds import find_excess
from fallow.action_models import Change, Intent, Target
from tests.actions.cases import NOW, facts, policy, spent


def intent(capability: str, *namespaces: str) -> Intent:
    targets = [Target("c", "v1", "Pod", space, "p", "u") for space in namespaces]
    changes = tuple(Change(t, "PATCH", "/p", {}) for t in targets)
    return Intent(Target("c", "v1", "Node", "", "n", "u"), capability, changes, ())


@pytest.mark.parametrize(
    ("made", "gates"),
    [
        (intent("suspend", "team-a"), []),
        (intent("suspend"), []),
        (intent("suspend", "team-a", "team-b", ""), []),
        (intent("evict", "team-a"), ["verb"]),
        (intent("suspend", "team-a", "other", "kube-system"), ["namespace", "namespace"]),
        (intent("drain", "other"), ["verb", "namespace"]),
    ],
)
def test_what_goes_beyond_the_policy_is_named(made: Intent, gates: list[str]) -> None:
    decision = decide(policy(), facts(), spent(), NOW)
    assert [reason.gate for reason in find_excess(decision, made)] == gates


def test_a_decision_that_says_nothing_allows_nothing() -> None:
    decision = msgspec.structs.replace(decide(policy(), facts(), spent(), NOW), parameters={})
    assert [r.gate for r in find_excess(decision, intent("suspend", "a"))] == ["verb", "namespace"]


def test_a_verb_in_the_policy_allows_what_its_executor_does_for_it() -> None:
    decision = decide(policy(), facts(), spent(), NOW)
    by_verb = msgspec.structs.replace(
        decision, parameters={"capabilities": ["stop"], "allowed_namespaces": ["*"]}
    )
    assert not find_excess(by_verb, intent("scale", "a"))
