"""The gate `wanted`: what is probably wanted soon waits, and so does too little history."""

from typing import Any

import msgspec
import pytest

from actions.gates import GateInput, find_closed_gates
from tests.actions.cases import NOW, POLICY, SPENT, WANTED, advice, facts, finding


def refusals(details: dict[str, Any], verb: str = "stop") -> list[str]:
    shown = {"actionable": True, "reasons": [], **details}
    case = facts(finding=finding(details=shown), recommendation=advice(verb))
    return [
        c.reason.text
        for c in find_closed_gates(GateInput(POLICY, case, SPENT, NOW))
        if c.gate.gate == "wanted"
    ]


@pytest.mark.parametrize(("above", "held"), [(0.0, False), (0.0001, True)])
def test_the_probability_is_held_against_the_declared_rate(above: float, held: bool) -> None:
    rate = POLICY.reversals.rate
    estimate = {**WANTED, "probability": rate + above, "exposures": 99, "returns": 1}
    assert bool(refusals({"wanted": estimate})) is held


def test_too_little_history_says_how_much_is_missing() -> None:
    few = {**WANTED, "probability": 0.125, "exposures": 3, "own_days": 1}
    (text,) = refusals({"wanted": few})
    assert "too little history, 0 returns of 3 rests" in text
    rate = POLICY.reversals.rate
    assert f"for {rate:.1%}" in text


def test_what_was_not_estimated_is_unknown_and_what_is_not_asked_passes() -> None:
    assert refusals({}) == ["whether it is wanted soon is unknown: its hours are not rolled up yet"]
    assert refusals({"wanted_asked": False}) == []


def test_only_stops_of_idle_work_are_asked() -> None:
    assert refusals({}, verb="cordon") == []
    other = facts(finding=msgspec.structs.replace(finding(), analyzer="sizing"))
    assert not [
        c
        for c in find_closed_gates(GateInput(POLICY, other, SPENT, NOW))
        if c.gate.gate == "wanted"
    ]
