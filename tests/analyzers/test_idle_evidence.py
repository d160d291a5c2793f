"""The verdict of every combination of signals, and each veto alone, by the words it gives."""

from itertools import product
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzers.idle.evidence import (
    HARD,
    SOFT,
    UNACTIONABLE,
    VETOES,
    IdleSignals,
    compute_confidence,
    judge_signals,
)

GOOD: dict[str, Any] = {"physics": True, "host": True, "intent": True}
KEYS = frozenset({"physics", "host", "intent"})
ALONE = "no independent signal beside compute"
NO_PHYSICS = "no signal of physics (power, processes, last kernel)"
NO_HOST = "no signal from the host or of intent"
HOT = "power is above the idle band"
HOST = "the host is busy: preprocessing, a download or a checkpoint"


def test_a_veto_of_its_own_makes_unknown_or_only_suspected_or_only_not_actionable() -> None:
    for name, why in HARD.items():
        made = judge_signals(IdleSignals(**GOOD, **{name: True}))
        assert (made.verdict, made.evidence, made.actionable) == ("unknown", None, False)
        assert made.reasons == (why,)
    for table, evidence in ((SOFT, "suspected"), (UNACTIONABLE, "confirmed")):
        for name, why in table.items():
            made = judge_signals(IdleSignals(**GOOD, **{name: True}))
            assert (made.verdict, made.evidence, made.actionable) == ("idle", evidence, False)
            assert made.reasons == (why,)
    assert set(VETOES) == {*SOFT, "unknown_owner", "protected", "shared_estimated"}


@pytest.mark.parametrize(
    ("signals", "why"),
    [
        ({"low": True}, "the devices do steady low work"),
        ({"compute": False}, "the devices compute"),
        ({"intent": False}, "a kernel or terminal is at work, or requests are served"),
    ],
)
def test_what_works_is_busy_and_says_by_which_sign(signals: dict[str, Any], why: str) -> None:
    made = judge_signals(IdleSignals(**{**GOOD, **signals}))
    assert (made.verdict, made.evidence, made.actionable) == ("busy", None, False)
    assert made.reasons == (why,)


def expect(
    physics: bool | None, host: bool | None, *, intent: bool | None
) -> tuple[str, list[str]]:
    """Return evidence and reasons as the documents state them, not as the code computes them."""
    reasons = [text for value, text in ((physics, HOT), (host, HOST)) if value is False]
    second = True in {physics, host, intent}
    if not second:
        reasons.append(ALONE)
    elif physics is None:
        reasons.append(NO_PHYSICS)
    if True not in {host, intent}:
        reasons.append(NO_HOST)
    against = False in {physics, host}
    return ("confirmed" if second and not against else "suspected"), reasons


@pytest.mark.parametrize(
    ("physics", "host", "intent"),
    [*product((True, False, None), (True, False, None), (True, None))],
)
def test_acting_needs_physics_and_one_of_host_and_intent(
    *, physics: bool | None, host: bool | None, intent: bool | None
) -> None:
    made = judge_signals(IdleSignals(physics=physics, host=host, intent=intent))
    evidence, reasons = expect(physics, host, intent=intent)
    assert (made.verdict, made.evidence, list(made.reasons)) == ("idle", evidence, reasons)
    assert made.actionable == (not reasons)


@pytest.mark.parametrize("host", [True, None])
@pytest.mark.parametrize("intent", [True, None])
def test_a_device_without_a_power_sensor_needs_both_host_and_intent(
    *, host: bool | None, intent: bool | None
) -> None:
    made = judge_signals(IdleSignals(host=host, intent=intent, no_power_sensor=True))
    assert made.actionable == bool(host and intent)
    without = judge_signals(IdleSignals(host=host, intent=intent))
    assert not without.actionable


@pytest.mark.parametrize(
    ("signals", "coverage", "exact", "evidence", "expected"),
    [
        (GOOD, 1.0, True, "confirmed", 1.0),
        (GOOD, 0.9, True, "confirmed", 0.9),
        (GOOD, 1.5, True, "confirmed", 1.0),
        (GOOD, -0.5, True, "confirmed", 0.0),
        (GOOD, 1.0, False, "confirmed", 0.5),
        (GOOD, 1.0, True, "suspected", 0.5),
        (GOOD, 1.0, False, None, 0.25),
        ({"physics": True, "host": False}, 1.0, True, "confirmed", 0.6667),
        ({"compute": False, "physics": True}, 1.0, True, "confirmed", 0.5),
        ({}, 0.8, True, "suspected", 0.4),
    ],
)
def test_confidence_is_coverage_by_the_share_of_keys_by_attribution(
    signals: dict[str, Any], coverage: float, exact: bool, evidence: Any, expected: float
) -> None:  # fmt: skip
    made = IdleSignals(**signals)
    assert compute_confidence(made, coverage=coverage, exact=exact, evidence=evidence) == expected


@given(
    st.builds(
        IdleSignals,
        **{
            name: st.sampled_from((True, False, None)) if name in KEYS else st.booleans()
            for name in IdleSignals.__struct_fields__
        },
    )
)
def test_earlier_stretches_change_only_what_may_be_acted_upon(signals: IdleSignals) -> None:
    """So `judge.judge_window` knows the findings before it reads earlier stretches."""
    without, recurrent = (
        judge_signals(msgspec.structs.replace(signals, recurrent=value)) for value in (False, True)
    )
    assert (without.verdict, without.evidence) == (recurrent.verdict, recurrent.evidence)
    assert recurrent.actionable is False
