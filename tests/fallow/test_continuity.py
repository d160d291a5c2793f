"""Which stored case a finding goes on, what it cost so far, and where a new case begins."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fallow.case_identity import (
    CASE,
    TOLERANCE,
    CaseKin,
    StoredCase,
    extend,
    get_judged_part,
    get_kin,
    resolve,
    to_stored_case,
)
from fallow.models import Claim, Finding, Recommendation, Subject, compute_finding_id
from fallow.window import Window

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
MINUTE = timedelta(minutes=1)
SUBJECT = Subject("c", "team-a", "Notebook", "nb")


def by_kin(findings: Iterable[Finding]) -> dict[CaseKin, list[StoredCase]]:
    """Return findings as an analysis stored them."""
    rows: dict[CaseKin, list[StoredCase]] = {}
    for finding in findings:
        rows.setdefault(get_kin(finding), []).append(to_stored_case(finding))
    return rows


GPUS, USD_H = 2, Decimal(3)
LOOKBACK = 25 * HOUR


def finding(start: datetime, end: datetime, **changes: Any) -> Finding:
    """Return two GPUs idle between two moments, at three dollars an hour each."""
    hours = (end - start) / HOUR * GPUS
    made = Finding(
        id=compute_finding_id("idle", "idle_notebook", SUBJECT, start),
        analyzer="idle",
        kind="idle_notebook",
        subject=SUBJECT,
        window=Window(start, end),
        verdict="idle",
        evidence="confirmed",
        confidence=1.0,
        gpu_hours=hours,
        usd=Decimal(str(round(hours, 6))) * USD_H,
        details={"why": "at rest"},
    )
    return msgspec.structs.replace(made, **changes)


def stored(*stretches: StoredCase) -> dict[CaseKin, list[StoredCase]]:
    return {get_kin(finding(NOW, NOW + HOUR)): [*stretches]}


def stretch(start: datetime, end: datetime, **changes: Any) -> StoredCase:
    return msgspec.structs.replace(to_stored_case(finding(start, end)), **changes)


BEFORE = stretch(NOW - 30 * HOUR, NOW - HOUR)


def test_a_finding_whose_start_slid_is_the_stored_case_with_the_hours_of_both() -> None:
    (case,) = resolve([finding(NOW - LOOKBACK, NOW)], stored(BEFORE))
    assert (case.id, case.window) == (BEFORE.id, Window(BEFORE.start, NOW))
    assert (case.gpu_hours, case.usd) == (60.0, Decimal(180))
    assert get_judged_part(case) == (NOW - LOOKBACK, 50.0, Decimal(150))
    assert case.details["why"] == "at rest"


def test_to_resolve_again_changes_nothing() -> None:
    (case,) = resolve([finding(NOW - LOOKBACK, NOW)], stored(BEFORE))
    assert resolve([case], stored(BEFORE)) == [case]
    assert resolve([case], stored(to_stored_case(case))) == [case]


def test_a_whole_stretch_has_the_figures_of_its_last_judgement() -> None:
    again = finding(BEFORE.start + 2 * MINUTE, NOW, gpu_hours=59.5)
    (case,) = resolve([again], stored(BEFORE))
    assert (case.id, case.window.start) == (BEFORE.id, BEFORE.start)
    lead = 59.5 * 2 / (30 * 60 - 2)  # two minutes that only the earlier judgement saw
    assert case.gpu_hours == pytest.approx(59.5 + lead, abs=1e-6)
    assert get_judged_part(case).gpu_hours == 59.5
    (exact,) = resolve([finding(BEFORE.start, NOW, gpu_hours=59.5)], stored(BEFORE))
    assert exact.gpu_hours == 59.5
    assert CASE not in exact.details


def test_a_start_found_earlier_than_the_stored_one_is_told_under_the_same_id() -> None:
    (case,) = resolve([finding(NOW - 90 * HOUR, NOW)], stored(BEFORE))
    assert (case.id, case.window.start) == (BEFORE.id, NOW - 90 * HOUR)
    assert case.gpu_hours == 180.0


@pytest.mark.parametrize(
    ("after", "same"),
    [
        (-HOUR, True),
        (-TOLERANCE, True),
        (-TOLERANCE + timedelta(seconds=1), False),
        (timedelta(0), False),
        (HOUR / 2, False),
    ],
    ids=str,
)
def test_what_begins_when_the_stored_stretch_had_ended_is_a_new_case(
    after: timedelta, same: bool
) -> None:
    (case,) = resolve([finding(BEFORE.end + after, NOW + 9 * HOUR)], stored(BEFORE))
    assert (case.id == BEFORE.id) is same
    if not same:
        assert case.window.start == BEFORE.end + after


def test_of_two_findings_the_one_that_shares_more_is_the_stored_case() -> None:
    before = finding(BEFORE.start, NOW - 10 * HOUR)
    later = finding(NOW - 9 * HOUR, NOW)
    first, second = resolve([later, before], stored(BEFORE))
    assert second.id == BEFORE.id
    assert (first.id, first.window) == (later.id, later.window)


def test_stretches_without_figures_leave_those_that_were_judged_and_say_so() -> None:
    bare = msgspec.structs.replace(BEFORE, gpu_hours=None, usd=None)
    (case,) = resolve([finding(NOW - LOOKBACK, NOW)], stored(bare))
    assert (case.window.start, case.gpu_hours) == (BEFORE.start, 50.0)
    assert case.details[CASE] == {
        "judged_from": (NOW - LOOKBACK).isoformat(),
        "judged_gpu_hours": 50.0,
        "judged_usd": "150.0",
        "counted_from": (NOW - LOOKBACK).isoformat(),
    }
    assert get_judged_part(case) == (NOW - LOOKBACK, 50.0, Decimal(150))


@pytest.mark.parametrize("lacks", ["stretch", "finding"])
def test_dollars_of_a_case_are_known_only_where_all_of_it_has_a_price(lacks: str) -> None:
    before = msgspec.structs.replace(BEFORE, usd=None) if lacks == "stretch" else BEFORE
    found = finding(NOW - LOOKBACK, NOW)
    if lacks == "finding":
        found = msgspec.structs.replace(found, usd=None)
    (case,) = resolve([found], stored(before))
    assert (case.gpu_hours, case.usd) == (60.0, None)
    assert get_judged_part(case) == (NOW - LOOKBACK, 50.0, found.usd)


def test_a_moment_of_the_past_has_the_hours_until_then() -> None:
    (case,) = resolve([finding(NOW - 20 * HOUR, NOW - 15 * HOUR)], stored(BEFORE))
    assert (case.id, case.window) == (BEFORE.id, Window(BEFORE.start, NOW - 15 * HOUR))
    assert case.gpu_hours == pytest.approx(30.0, abs=1e-5)


@pytest.mark.parametrize(("uid", "same"), [("uid-1", True), ("uid-2", False), (None, True)])
def test_another_object_of_the_same_name_is_another_case(uid: str | None, same: bool) -> None:
    before = msgspec.structs.replace(BEFORE, uid="uid-1")
    uids = {0: uid} if uid else {}
    (case,) = resolve([finding(BEFORE.start, NOW)], stored(before), uids)
    assert (case.id == BEFORE.id) is same
    if not same:
        assert case.window == Window(BEFORE.end, NOW)
        assert (case.gpu_hours, case.usd) == (2.0, Decimal(6))


def test_an_id_that_an_analyzer_gives_to_every_stretch_names_only_the_first_case() -> None:
    named = {"id": "nb-idle"}
    before = stretch(NOW - 9 * HOUR, NOW - 5 * HOUR, **named)
    (case,) = resolve([finding(NOW - 2 * HOUR, NOW, **named)], stored(before))
    assert case.id != before.id
    (again,) = resolve(
        [finding(NOW - 2 * HOUR, NOW + HOUR, **named)], stored(before, to_stored_case(case))
    )
    assert again.id == case.id


def test_advice_claims_the_hours_of_the_whole_case() -> None:
    claim = Claim("c", "team-a", "Notebook", "nb", None, "idle", 50.0, Decimal(150))
    advice = Recommendation(
        "stop", "x", "idle", True, claims=(claim,), gross_gpu_hours=50.0, marginal_gpu_hours=25.0
    )  # fmt: skip
    found = finding(NOW - LOOKBACK, NOW, recommendations=(advice,))
    (scaled,) = extend(found, BEFORE).recommendations
    assert scaled.claims[0].gpu_hours == 60.0
    assert scaled.claims[0].usd == Decimal(180)
    assert (scaled.gross_gpu_hours, scaled.marginal_gpu_hours) == (60.0, 30.0)


# Lives: true stretches, and an analyzer whose window moves over them.


@st.composite
def lives(draw: st.DrawFn) -> tuple[list[Window], list[datetime]]:
    """Return true idle stretches, busy in between, and the moments at which somebody judges."""
    stretches, at = [], NOW
    for _ in range(draw(st.integers(1, 5))):
        at += draw(st.integers(6, 3000)) * MINUTE
        length = draw(st.integers(61, 6000)) * MINUTE
        stretches.append(Window(at, at + length))
        at += length
    instants, now = [], NOW
    while now < at:
        # As long as judgements overlap nothing is lost between them.
        now += draw(st.integers(1, 23 * 60)) * MINUTE
        instants.append(now)
    return stretches, instants


def judge(stretches: Sequence[Window], now: datetime) -> list[Finding]:
    """Return what lasted an hour or more of each stretch, within the last 25 hours."""
    edges = [(max(w.start, now - LOOKBACK), min(w.end, now)) for w in stretches]
    return [finding(begin, end) for begin, end in edges if end - begin >= HOUR]


@given(lives())
def test_every_true_stretch_has_one_id_and_start_and_its_hours(
    life: tuple[list[Window], list[datetime]],
) -> None:
    stretches, instants = life
    cases: dict[str, Finding] = {}
    ids: dict[int, set[str]] = {}
    for now in instants:
        for case in resolve(judge(stretches, now), by_kin(cases.values())):
            (true,) = (n for n, w in enumerate(stretches) if w.start < case.window.end <= w.end)
            begin = stretches[true].start
            ids.setdefault(true, set()).add(case.id)
            cases[case.id] = case
            assert case.window.start == begin
            hours = (case.window.end - begin) / HOUR * GPUS
            assert case.gpu_hours == pytest.approx(hours, abs=1e-3)
            assert float(case.usd or 0) == pytest.approx(hours * float(USD_H), abs=1e-2)
            judged = get_judged_part(case)
            assert judged.start == max(begin, now - LOOKBACK)
    assert all(len(of_one) == 1 for of_one in ids.values())
    assert len(set().union(*ids.values())) == len(ids)
