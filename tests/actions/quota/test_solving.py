"""The solver keeps what was promised, whatever the tree, the use and the wishes."""

from datetime import UTC, datetime, timedelta
from math import floor
from typing import Any

import pytest
from hypothesis import event, given
from hypothesis import strategies as st
from msgspec import structs

from actions.quota.accounts import Account, QuotaStep, StepRules, TargetQuota
from actions.quota.solver import solve

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
DAY = timedelta(days=1)
EASY = StepRules(floor=0, max_step=1)


def account(key: str, guarantee: float | None, used: float | None = 0, **more: object) -> Account:
    return Account(key, guarantee, used=used, **more)  # type: ignore[arg-type]


def after(accounts: list[Account], said: QuotaStep) -> dict[str, float | None]:
    return {a.key: a.nominal for a in accounts} | {s.key: s.after for s in said.shifts}


def changes(said: QuotaStep) -> dict[str, float]:
    return {s.key: s.change for s in said.shifts}


def test_what_a_giver_gives_is_what_receivers_get() -> None:
    solution = solve(
        [account("a", 16, 4), account("b", 4, 4), account("c", 2, 2)],
        [TargetQuota("a", 12), TargetQuota("b", 7), TargetQuota("c", 3)],
        StepRules(),
        NOW,
    )
    assert changes(solution) == {"a": -4, "b": 3, "c": 1}
    assert solution.moved == 4
    assert [s.key for s in solution.shifts] == ["a", "b", "c"], "lenders shrink first"


def test_those_heard_first_get_first_when_less_can_be_given_than_was_proposed() -> None:
    accounts = [account("a", 16, 13), account("b", 4, 4), account("c", 2, 2)]
    solution = solve(
        accounts, [TargetQuota("a", 12), TargetQuota("c", 4), TargetQuota("b", 7)], StepRules(), NOW
    )
    assert changes(solution) == {"a": -2, "c": 2}
    assert dict(solution.refused) == {"b": "the others can give, or need, no more"}


@pytest.mark.parametrize(
    ("giver", "rules", "given"),
    [
        (account("a", 16, 4), StepRules(max_step=0.25), -4),
        (account("a", 16, 4), StepRules(max_step=0.1), -1),
        (account("a", 16, 12), StepRules(floor=2, max_step=1), -2),
        (account("a", 16, 4, waiting=9), StepRules(max_step=1), -2),
        (account("a", 16, 4, least=15), StepRules(max_step=1), -1),
        (account("a", 2.5, 0), StepRules(max_step=1, floor=0), -2),
        (account("a", 16, 20), StepRules(max_step=1), 0),
        (account("a", 3, 0), StepRules(max_step=0.25), 0),
        (account("a", 16, None), StepRules(), 0),
        (account("a", 16, 0, fixed="Argo CD manages it"), StepRules(), 0),
        (account("a", None, 0), StepRules(), 0),
    ],
)
def test_a_giver_keeps_its_use_its_line_its_promise_and_gives_one_step(
    giver: Account, rules: StepRules, given: int
) -> None:
    solution = solve(
        [giver, account("b", 1, 1)], [TargetQuota("a", 0), TargetQuota("b", 90)], rules, NOW
    )
    assert changes(solution).get("a", 0) == given
    if not given:
        assert solution.shifts == ()
        assert dict(solution.refused)["a"]


@pytest.mark.parametrize(
    ("giver", "to", "why"),
    [
        (account("a", 16, 4), 15.6, "nothing is asked of it"),
        (account("a", 16, 15), 8, "it needs 16 of its 16"),
        (account("a", 3, 0), 1, "25% of its 3 is less than one device"),
    ],
)
def test_a_giver_that_gives_nothing_says_why(giver: Account, to: float, why: str) -> None:
    step = solve([giver, account("b", 1, 1)], [TargetQuota("a", to), TargetQuota("b", 9)],
                 StepRules(), NOW)  # fmt: skip
    assert dict(step.refused)["a"] == why


def test_a_receiver_stays_below_its_cap() -> None:
    accounts = [account("a", 16), account("b", 1, 1, most=3)]
    solution = solve(accounts, [TargetQuota("a", 0), TargetQuota("b", 9)], EASY, NOW)
    assert changes(solution) == {"a": -2, "b": 2}


@pytest.mark.parametrize(
    ("moved", "days", "allowed"),
    [(-2, 6, False), (-2, 8, True), (2, 8, False), (2, 27, False), (2, 29, True), (2, -1, False)],
)
def test_an_account_moves_once_in_a_period_and_not_back_before_it_settled(
    moved: float, days: int, allowed: bool
) -> None:
    giver = account("a", 16, moved=moved, moved_at=NOW - days * DAY)
    solution = solve(
        [giver, account("b", 1, 1)], [TargetQuota("a", 12), TargetQuota("b", 5)], StepRules(), NOW
    )
    assert bool(solution.shifts) is allowed


def test_a_move_too_small_to_matter_is_not_made() -> None:
    accounts = [account("a", 16, 4), account("b", 4, 4)]
    solution = solve(
        accounts, [TargetQuota("a", 14), TargetQuota("b", 6)], StepRules(least_move=3), NOW
    )
    assert solution.shifts == ()
    assert "fewer than 3" in dict(solution.refused)["a"]


TREE = [
    account("root", 32, 20),
    account("left", 20, 6, parent="root"),
    account("right", 12, 12, parent="root"),
    account("l1", 14, 2, parent="left"),
    account("l2", 4, 4, parent="left"),
    account("r1", 6, 6, parent="right"),
    account("r2", 6, 6, parent="right"),
]


def test_parents_shrink_after_their_children_and_grow_before_them() -> None:
    solution = solve(
        TREE, [TargetQuota("l1", 10), TargetQuota("l2", 5), TargetQuota("r1", 9)], StepRules(), NOW
    )
    assert [(s.key, s.change) for s in solution.shifts] == [
        ("l1", -3), ("left", -2), ("right", 2), ("l2", 1), ("r1", 2)
    ]  # fmt: skip
    assert solution.parents == {"left", "right"}
    assert solution.moved == 3


def test_children_promised_more_than_their_parent_has_are_left_alone() -> None:
    tree = [account("p", 10), account("a", 8, parent="p"), account("b", 4, 4, parent="p")]
    solution = solve(tree, [TargetQuota("a", 6), TargetQuota("b", 6)], EASY, NOW)
    assert solution.shifts == ()
    assert (
        dict(solution.refused)["a"] == "p has 10, those below it are promised 12: mend that first"
    )


def test_a_giver_behind_a_parent_that_may_not_shrink_serves_its_own_house_first() -> None:
    tree = [*TREE[:2], *TREE[2:3], *TREE[3:]]
    tree[1] = account("left", 20, 6, parent="root", fixed="the tree root of a profile")
    tree.append(account("r3", 4, 0, parent="right"))
    tree[2] = account("right", 16, 12, parent="root")
    tree[0] = account("root", 36, 20)
    wishes = [
        TargetQuota("l1", 10),
        TargetQuota("r3", 2),
        TargetQuota("r1", 8),
        TargetQuota("l2", 8),
    ]
    solution = solve(tree, wishes, EASY, NOW)
    assert changes(solution) == {"l1": -4, "l2": 4, "r3": -2, "r1": 2}
    assert not solution.parents


def test_a_parent_never_shrinks_below_what_is_used_under_it() -> None:
    """`a` borrows: p uses 20 of its 20, so 5 that `b` gives away would be taken from `a`."""
    tree = [
        account("p", 20, 20),
        account("a", 10, 18, parent="p"),
        account("b", 10, 2, parent="p"),
        account("q", 20, 12),
        account("c", 12, 12, parent="q"),
    ]
    wishes = [TargetQuota("b", 5), TargetQuota("c", 17)]
    assert solve(tree, wishes, EASY, NOW).shifts == ()
    tree[0] = account("p", 20, 15)
    assert changes(solve(tree, wishes, EASY, NOW)) == {"b": -5, "p": -5, "q": 5, "c": 5}


amounts = st.integers(0, 40).map(float) | st.floats(0, 40).map(lambda x: round(x, 1))


def seldom(draw: st.DrawFn, odd: st.SearchStrategy[Any], usual: Any) -> Any:
    """Draw what is out of the ordinary, one time in five."""
    return draw(odd) if draw(st.integers(0, 4)) == 4 else usual


@st.composite
def cases(draw: st.DrawFn) -> tuple[list[Account], list[TargetQuota], StepRules]:
    """Draw a forest, wishes about its leaves, and rules; seldom are sums broken to begin with."""
    size = draw(st.integers(2, 9))
    parents = [draw(st.none() | st.integers(0, n - 1)) if n else None for n in range(size)]
    inner = {p for p in parents if p is not None}
    made: dict[int, Account] = {}
    for n in reversed(range(size)):
        below = sum(made[k].nominal or 0 for k, p in enumerate(parents) if p == n)
        have = below + draw(st.integers(0, 3)) if n in inner else float(draw(st.integers(8, 40)))
        have = seldom(draw, st.none() | amounts, float(have))
        parent = parents[n]
        made[n] = Account(
            f"q{n}",
            have,
            None if parent is None else f"q{parent}",
            seldom(draw, st.none() | amounts, float(draw(st.integers(0, 8)))),
            seldom(draw, amounts, 0.0),
            seldom(draw, amounts, 0.0),
            None if have is None else seldom(draw, st.integers(0, 3).map(have.__add__), None),
            seldom(draw, st.just("GitOps"), ""),
            draw(st.sampled_from([3.0, -3.0])),
            seldom(draw, st.integers(0, 40).map(lambda d: NOW - d * DAY), None),
        )
    turns = draw(st.permutations(range(size)))
    wishes = [
        TargetQuota(
            f"q{n}", (made[n].nominal or 0.0) + (1 if at % 2 else -1) * draw(st.integers(1, 20))
        )
        for at, n in enumerate(turns)
        if n not in inner or draw(st.integers(0, 9)) == 9
    ]
    rules = StepRules(
        draw(st.integers(0, 3)), draw(st.sampled_from([0.25, 0.5, 1.0])),
        least_move=seldom(draw, st.integers(1, 3), 1),
    )  # fmt: skip
    return list(made.values()), wishes, rules


@given(cases())
def test_every_step_keeps_sums_promises_caps_and_bounds(
    case: tuple[list[Account], list[TargetQuota], StepRules],
) -> None:
    accounts, wishes, rules = case
    solution = solve(accounts, wishes, rules, NOW)
    event(f"{len(solution.shifts)} shifts, {len(solution.parents)} of parents")
    known = {a.key: a for a in accounts}
    wanted = {w.key: w.to for w in wishes}
    leaves = [s for s in solution.shifts if s.key not in solution.parents]
    assert sum(s.change for s in leaves) == pytest.approx(0, abs=1e-9)
    assert {s.key for s in leaves}.isdisjoint(dict(solution.refused))
    assert wanted.keys() <= {s.key for s in leaves} | dict(solution.refused).keys()
    for shift in leaves:
        one = known[shift.key]
        assert shift.change == floor(shift.change) != 0
        assert not one.fixed
        assert (shift.change > 0) == (wanted[shift.key] > shift.before)
        assert abs(shift.change) <= abs(wanted[shift.key] - shift.before) + 1e-9
        assert one.moved_at is None or NOW - one.moved_at >= rules.period
        if one.moved_at is not None and NOW - one.moved_at < rules.settle:
            assert shift.change * one.moved >= 0
        if shift.change < 0:
            assert one.used is not None
            assert shift.after >= one.used + one.waiting + rules.floor - 1e-9
            assert shift.after >= one.least - 1e-9
            assert -shift.change <= rules.max_step * shift.before + 1e-9
        elif one.most is not None:
            assert shift.after <= one.most + 1e-9
    _keeps_trees(accounts, solution)


def _keeps_trees(accounts: list[Account], said: QuotaStep) -> None:
    """At every moment of writing no sum of children outgrows its parent, nor all of them Sigma."""
    known = {a.key: a for a in accounts}
    now: dict[str, float | None] = {a.key: a.nominal for a in accounts}
    inner = {a.parent for a in accounts if a.parent}

    def total() -> float:
        return sum(g for k, g in now.items() if k not in inner and g is not None)

    def above() -> dict[str, float]:
        found = {}
        for key in inner:
            have = now.get(key)
            below = [now[a.key] for a in accounts if a.parent == key]
            if have is not None:
                found[key] = sum(g for g in below if g is not None) - have
        return found

    whole, start = total(), above()
    for shift in said.shifts:
        assert now[shift.key] == shift.before
        now[shift.key] = shift.after
        assert total() <= whole + 1e-9
        for key, over in above().items():
            assert over <= max(start[key], 0) + 1e-9, "no child grows before its parent"
    for key, over in above().items():
        assert over == pytest.approx(start[key], abs=1e-9), "the room between stays"
    for key in said.parents:
        one, have = known[key], now[key]
        assert have is not None
        assert not one.fixed
        assert one.most is None or have <= one.most + 1e-9
        if have < (one.nominal or 0):
            assert have >= max(one.least, one.used or 0) - 1e-9


@given(cases())
def test_asking_twice_says_the_same_and_a_step_leaves_nothing_to_do_at_once(
    case: tuple[list[Account], list[TargetQuota], StepRules],
) -> None:
    accounts, wishes, rules = case
    solution = solve(accounts, wishes, rules, NOW)
    assert solution == solve(accounts, wishes, rules, NOW)
    result = {s.key: s for s in solution.shifts}
    then = [
        structs.replace(a, nominal=t.after, moved=t.change, moved_at=NOW)
        if (t := result.get(a.key))
        else a
        for a in accounts
    ]
    again = solve(then, wishes, rules, NOW + DAY)
    assert not {s.key for s in again.shifts if s.key not in again.parents} & result.keys()
