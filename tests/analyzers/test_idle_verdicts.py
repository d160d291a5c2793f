"""The truth table of telemetry-and-waste.md#idle and #safety, over all combinations."""

import itertools

import msgspec
import pytest

from analyzers.idle.evidence import (
    HARD,
    SOFT,
    UNACTIONABLE,
    IdleSignals,
    compute_confidence,
    judge_signals,
)

FLAGS = (*HARD, *SOFT, *UNACTIONABLE)
HELD = ("requested", "on_hold")
TRI = (True, False, None)
SURE = IdleSignals(physics=True, host=True, intent=True)


def test_the_table_names_every_flag_a_witness_record_has() -> None:
    named = {f.name for f in msgspec.structs.fields(IdleSignals)}
    signals = {"compute", "physics", "host", "intent", "no_power_sensor", "power_still", "low"}
    assert named == {*signals, *FLAGS, *HELD}


@pytest.mark.parametrize("flag", HELD)
def test_what_holds_a_workload_forbids_acting_and_takes_nothing_from_the_verdict(flag: str) -> None:
    free, held = judge_signals(SURE), judge_signals(msgspec.structs.replace(SURE, **{flag: True}))
    assert (free.actionable, held.actionable) == (True, False)
    assert msgspec.structs.replace(held, actionable=True) == free


def test_any_doubt_forbids_acting_in_every_combination() -> None:
    for size in (1, 2):
        for flags in itertools.combinations(FLAGS, size):
            for physics, host, intent, mig in itertools.product(TRI, TRI, TRI, (True, False)):
                doubted = IdleSignals(
                    physics=physics,
                    host=host,
                    intent=intent,
                    no_power_sensor=mig,
                    **dict.fromkeys(flags, True),
                )
                judged = judge_signals(doubted)
                assert not judged.actionable, doubted
                assert judged.reasons, doubted


def test_acting_needs_compute_physics_and_host_or_intent() -> None:
    for compute, physics, host, intent in itertools.product((True, False), TRI, TRI, TRI):
        judged = judge_signals(IdleSignals(compute, physics, host, intent))
        against = physics is False or host is False or intent is False
        wanted = compute and physics is True and (host or intent) is True and not against
        assert judged.actionable is wanted


@pytest.mark.parametrize("silent", ["no_power_sensor", "power_still"])
def test_acting_needs_host_and_intent_where_physics_is_silent(silent: str) -> None:
    for compute, physics, host, intent in itertools.product((True, False), TRI, TRI, TRI):
        judged = judge_signals(IdleSignals(compute, physics, host, intent, **{silent: True}))
        against = physics is False or host is False or intent is False
        sure = (host or intent) if physics else (host and intent)
        assert judged.actionable is bool(compute and sure and not against)


def test_compute_alone_is_suspected_and_one_independent_witness_confirms() -> None:
    assert judge_signals(IdleSignals()).evidence == "suspected"
    for name in ("physics", "host", "intent"):
        assert judge_signals(IdleSignals(**{name: True})).evidence == "confirmed"


@pytest.mark.parametrize("flag", HARD)
def test_a_hard_veto_leaves_no_verdict(flag: str) -> None:
    judged = judge_signals(msgspec.structs.replace(SURE, **{flag: True}))
    assert (judged.verdict, judged.evidence) == ("unknown", None)
    assert judged.reasons == (HARD[flag],)


@pytest.mark.parametrize("flag", SOFT)
def test_a_soft_veto_leaves_a_suspicion(flag: str) -> None:
    judged = judge_signals(msgspec.structs.replace(SURE, **{flag: True}))
    assert (judged.verdict, judged.evidence) == ("idle", "suspected")


def test_power_above_the_band_outweighs_host_and_intent() -> None:
    assert judge_signals(IdleSignals(physics=False, host=True, intent=True)).evidence == "suspected"


def test_somebody_at_work_is_busy_whatever_the_board_says() -> None:
    judged = judge_signals(msgspec.structs.replace(SURE, intent=False))
    assert (judged.verdict, judged.evidence) == ("busy", None)


def test_confidence_never_grows_with_doubt() -> None:
    sure = compute_confidence(SURE, coverage=1.0, exact=True, evidence="confirmed")
    assert sure == 1.0
    assert compute_confidence(SURE, coverage=0.5, exact=True, evidence="confirmed") == 0.5
    assert compute_confidence(SURE, coverage=1.0, exact=False, evidence="suspected") == 0.25
    assert compute_confidence(IdleSignals(), coverage=1.0, exact=True, evidence="suspected") == 0.5
