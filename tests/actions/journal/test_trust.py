"""Trust in a policy: proved by a back-test, or given by hand, in the journal."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from actions.decide import decide
from actions.journal import Journal, JournalState, event_types
from actions.journal.trust import add_trust, read_trust_state, revoke, trust_by_hand
from actions.policy.budgets import BudgetUsage
from actions.policy.model import Policy
from fallow.errors import UsageError
from tests.actions.cases import NOW, facts, policy, spent

WHY = "two weeks of notices, no complaint"


@pytest.fixture
def record(tmp_path: Path) -> Iterator[JournalState]:
    with Journal.open(tmp_path / "journal.sqlite", lambda: NOW, actor="fallow") as journal:
        yield JournalState(journal)


def known(record: JournalState, rule: Policy) -> BudgetUsage:
    return add_trust(spent(trusted=frozenset()), record, [rule])


def ruling(record: JournalState, rule: Policy) -> tuple[str, list[str]]:
    made = decide(rule, facts(), known(record, rule), NOW)
    return made.ruling, [f"{r.gate}: {r.text}" for r in made.reasons]


def back_tested(
    record: JournalState, rule: Policy, judged: int, back: int, *, days: int = 14
) -> None:
    """Write down what a replay gave, as `fallow backtest` does."""
    figures = {
        "fingerprint": rule.fingerprint,
        "since": (NOW - timedelta(days=days)).isoformat(),
        "until": NOW.isoformat(),
        "judged": judged,
        "reversed": back,
        "declared": rule.reversals.rate,
    }
    record.append(event_types.BACKTESTED, rule.name, figures)


def test_a_person_opens_a_policy_and_the_journal_says_who_and_why(record: JournalState) -> None:
    rule = policy()
    assert ruling(record, rule)[0] == "hold"
    given = trust_by_hand(record, rule, "ann", WHY)
    assert ruling(record, rule) == ("allow", [])
    assert given.text == f"trusted by hand by ann on 2026-11-20: {WHY}"
    (entry,) = record.journal.entries(event_types.TRUSTED)
    assert (entry.actor, entry.document["reason"], entry.at) == ("ann", WHY, NOW)
    assert known(record, rule).by_hand == {rule.name: given.text}
    again = JournalState(record.journal).catch_up()
    assert read_trust_state(again, rule) == read_trust_state(record, rule)
    assert (read_trust_state(record, rule).how, read_trust_state(record, rule).by) == (
        "hand",
        "ann",
    )


def test_trust_by_hand_ends_when_the_text_changes(record: JournalState) -> None:
    rule = policy()
    trust_by_hand(record, rule, "ann", WHY)
    changed = policy(cool_down=timedelta(hours=7))
    assert ruling(record, changed) == (
        "hold",
        [
            (
                "trusted: its text changed since it was trusted; no back-test of this text proved "
                "reversals within 5.0%"
            )
        ],
    )
    assert known(record, changed).by_hand == {}
    assert ruling(record, rule)[0] == "allow"


def test_trust_is_taken_back_however_it_came_to_be(record: JournalState) -> None:
    rule = policy()
    trust_by_hand(record, rule, "ann", WHY)
    revoke(record, rule.name, "bob", "complaints")
    assert ruling(record, rule)[0] == "hold"
    (entry,) = record.journal.entries(event_types.REVOKED)
    assert (entry.actor, entry.document) == ("bob", {"reason": "complaints"})
    record.append(
        event_types.TRUSTED,
        rule.name,
        {"fingerprint": rule.fingerprint, "by": "backtest", "upper_end": 0.04},
    )
    assert ruling(record, rule)[0] == "allow"
    revoke(record, rule.name, "bob")
    assert ruling(record, rule)[0] == "hold"
    with pytest.raises(UsageError, match="is not trusted"):
        revoke(record, rule.name, "bob")


def test_a_policy_trusted_by_hand_still_demotes_itself(record: JournalState) -> None:
    rule = policy()
    trust_by_hand(record, rule, "ann", WHY)
    record.append(event_types.DEMOTED, rule.name, {"reversed": 2, "acted": 3, "declared": 0.05})
    assert [line.split(":")[0] for line in ruling(record, rule)[1]] == ["demoted"]
    assert read_trust_state(record, rule).how == "demoted"
    trust_by_hand(record, rule, "ann", "its owners were asked")
    assert ruling(record, rule)[0] == "allow"


def test_a_verdict_of_the_time_before_intervals_is_no_trust(record: JournalState) -> None:
    rule = policy()
    old = {"fingerprint": rule.fingerprint, "by": "backtest", "judged": 3, "regretted": 0}
    record.append(event_types.TRUSTED, rule.name, old)
    assert ruling(record, rule)[0] == "hold"


def test_the_gate_says_what_the_last_back_test_lacks(record: JournalState) -> None:
    rule = policy()
    back_tested(record, rule, 9, 0)
    assert ruling(record, rule) == (
        "hold",
        [
            (
                "trusted: back-test of 2026-11-20: 0 of 9 within 5.0%: upper end 28.3%; needs "
                "about 50 more stops, at the pace of this history 78 days"
            )
        ],
    )


@pytest.mark.parametrize(
    ("rule", "by", "reason", "said"),
    [
        (policy(mode="notify"), "ann", WHY, "only notifies"),
        (policy(), " ", WHY, "the person who trusts it is not named"),
        (policy(), "ann", " \n\t", "needs a reason"),
        (policy(), "ann", "x" * 501, "501 characters; legal: 500"),
    ],
)
def test_trust_without_a_name_or_a_reason_is_none(
    record: JournalState, rule: Policy, by: str, reason: str, said: str
) -> None:
    with pytest.raises(UsageError, match=said):
        trust_by_hand(record, rule, by, reason)
    assert record.journal.entries() == []


def test_a_reason_may_be_as_long_as_500_characters(record: JournalState) -> None:
    assert len(trust_by_hand(record, policy(), "ann", "x" * 500).reason) == 500


def test_a_reason_cannot_drive_the_terminal(record: JournalState) -> None:
    given = trust_by_hand(record, policy(), "ann", "\x1b[31mred\x1b[0m\nand more")
    assert given.reason == "[31mred [0m and more"
