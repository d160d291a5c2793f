"""What was saved: every second of every device in one kind, dollars by its rate."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from actions.savings.forecast import compute_expected_rest, compute_survival
from actions.savings.measured_action import MeasuredAction
from actions.savings.measurement import measure_savings
from fallow.action_models import LedgerEntry
from tests.analyzers.conftest import Memory

pytestmark = pytest.mark.slow

START = datetime(2026, 11, 1, tzinfo=UTC)
ACT = START + timedelta(hours=10)
NOW = ACT + timedelta(hours=20)
RATE = Decimal("2.50")


def at(hours: float) -> datetime:
    """A moment so many hours after the act, as tables keep it."""
    return (ACT + timedelta(hours=hours)).replace(tzinfo=None)


@pytest.fixture
def views() -> Iterator[Memory]:
    memory = Memory()
    yield memory
    memory.engine.close()


def device(
    views: Memory, name: str = "GPU-0", *, seen: float = 20, weight: float = 1.0, **node: Any
) -> None:
    where = {"cluster": "c", "node": f"n-{name}"}
    times = {"first_seen": at(-10), "last_seen": at(seen)}
    views.rows("device", [{**where, "device": name, "weight": weight, **times}])
    views.rows(
        "node", [{**where, "provider": "aws", "capacity_type": "on-demand", **times, **node}]
    )


def holds(  # noqa: PLR0917  (columns of one row)
    views: Memory,
    who: str,
    since: float,
    until: float | None,
    name: str = "GPU-0",
    share: float = 1.0,
) -> None:
    views.rows(
        "allocation",
        [
            {
                "cluster": "c",
                "device": name,
                "pod_uid": f"{who}-{since}",
                "start": at(since),
                "end": None if until is None else at(until),
                "namespace": "ml",
                "workload_kind": "Notebook",
                "workload": who,
                "share": share,
            }
        ],
    )


def acted(back: float | None = None, **more: Any) -> MeasuredAction:
    return MeasuredAction(
        action="a",
        policy="p",
        cluster="c",
        namespace="ml",
        workload_kind="Notebook",
        workload="nb",
        at=ACT,
        returned_at=None if back is None else ACT + timedelta(hours=back),
        idle_since=ACT - timedelta(hours=2),
        **more,
    )


def rates(*names: str, weight: float = 1.0) -> list[dict[str, Any]]:
    return [
        {
            "cluster": "c",
            "device": name,
            "from_at": at(-10),
            "to_at": at(100),
            "loaded_usd_h": RATE * Decimal(str(weight)),
        }
        for name in names
    ]


def kinds(entries: list[LedgerEntry]) -> dict[str, float]:
    return {e.kind: round(e.gpu_hours, 6) for e in entries}


def test_a_device_that_nobody_took_is_released(views: Memory) -> None:
    device(views)
    holds(views, "nb", -5, 0.05)
    (entry,) = measure_savings(views, [acted()], rates("GPU-0"), NOW)
    assert (entry.kind, round(entry.gpu_hours, 6)) == ("released", 19.95)
    assert entry.usd == Decimal("49.875")
    assert (entry.start, entry.end) == (ACT, NOW)


@pytest.mark.parametrize(
    ("committed", "expected"),
    [
        (1.0, {"sunk": 20.0}),
        (0.5, {"sunk": 10.0, "cash": 9.5, "released": 0.5}),
        (0.0, {"cash": 19.0, "released": 1.0}),
    ],
)
def test_a_node_that_a_commitment_pays_saves_no_cash_whatever_its_label(
    views: Memory, committed: float, expected: dict[str, float]
) -> None:
    """An on-demand node is gone an hour after the act: of 20 h 1 h is free and 19 h are gone.

    A commitment for one node that pays one of two alike pays half of each: of the two, one more
    would have to be paid for, so that the half of a node is the cash.
    """
    device(views, seen=1)
    inventory(views)
    holds(views, "nb", -5, 0)
    prices = [row | {"committed": committed} for row in rates("GPU-0")]
    assert kinds(measure_savings(views, [acted()], prices, NOW)) == expected


def test_what_its_owner_deletes_would_have_held_nothing_from_then_on(views: Memory) -> None:
    device(views)
    holds(views, "nb", -5, 0)
    gone = acted(deleted_at=ACT + timedelta(hours=6))
    assert kinds(measure_savings(views, [gone], rates("GPU-0"), NOW)) == {"released": 6}


def test_what_another_workload_ran_there_is_served_and_the_rest_released(views: Memory) -> None:
    device(views)
    holds(views, "nb", -5, 0)
    holds(views, "train", 4, 12)
    holds(views, "other", 12, None)
    assert kinds(measure_savings(views, [acted()], rates("GPU-0"), NOW)) == {
        "served": 16,
        "released": 4,
    }


def inventory(views: Memory, read: float = 20) -> None:
    """Let the cluster's inventory be read without the other nodes: another node is in it."""
    times = {"first_seen": at(-10), "last_seen": at(read)}
    views.rows("node", [{"cluster": "c", "node": "another", **times}])


def removal(views: Memory, hours: float, reason: str = "RemovingNode") -> None:
    """Let the node controller say that the node of GPU-0 was removed."""
    about = {"kind": "Node", "name": "n-GPU-0", "reason": reason}
    views.rows("event", [{"cluster": "c", "uid": "e", "ts": at(hours), **about}])


def test_devices_whose_telemetry_ended_are_unknown_and_save_nothing(views: Memory) -> None:
    device(views, seen=1)
    holds(views, "nb", -5, 0)
    (entry,) = measure_savings(views, [acted()], rates("GPU-0"), NOW)
    assert (entry.kind, entry.gpu_hours, entry.usd) == ("released", 1, RATE)
    assert entry.unknown_gpu_hours == 19
    assert entry.held_gpu_hours == 20


@pytest.mark.parametrize(("read", "gone"), [(1.25, False), (1.26, True)])
def test_a_node_is_gone_where_the_inventory_was_read_later_without_it(
    views: Memory, read: float, *, gone: bool
) -> None:
    device(views, seen=1)
    holds(views, "nb", -5, 0)
    inventory(views, read)
    found = measure_savings(views, [acted()], rates("GPU-0"), NOW)
    assert kinds(found) == ({"cash": 19, "released": 1} if gone else {"released": 1})
    assert sum(e.unknown_gpu_hours for e in found) == (0 if gone else 19)


def test_a_dead_exporter_on_a_node_that_is_there_saves_nothing(views: Memory) -> None:
    device(views, seen=1, last_seen=at(20))
    holds(views, "nb", -5, 0)
    inventory(views)
    (entry,) = measure_savings(views, [acted()], rates("GPU-0"), NOW)
    assert (entry.gpu_hours, entry.unknown_gpu_hours) == (1, 19)


def test_what_was_silent_before_its_node_went_is_unknown_until_then(views: Memory) -> None:
    device(views, seen=1, last_seen=at(5))
    holds(views, "nb", -5, 0)
    inventory(views)
    found = measure_savings(views, [acted()], rates("GPU-0"), NOW)
    assert kinds(found) == {"cash": 15, "released": 1}
    assert sum(e.unknown_gpu_hours for e in found) == 4


@pytest.mark.parametrize(
    ("reason", "gone"), [("RemovingNode", True), ("DeletingNode", True), ("NodeNotReady", False)]
)
def test_a_node_is_gone_where_an_event_says_that_it_was_removed(
    views: Memory, reason: str, *, gone: bool
) -> None:
    device(views, seen=1)
    holds(views, "nb", -5, 0)
    removal(views, 1.05, reason)
    found = measure_savings(views, [acted()], rates("GPU-0"), NOW)
    expected = {"cash": 18.95, "released": 1.05} if gone else {"released": 1}
    assert kinds(found) == pytest.approx(expected)


def test_a_cloud_node_that_is_gone_is_cash_and_a_reservation_is_sunk(views: Memory) -> None:
    inventory(views)
    device(views, "GPU-0", seen=1)
    device(views, "GPU-1", seen=1, capacity_type="reserved")
    device(views, "GPU-2", seen=1, provider="other")
    for name in ("GPU-0", "GPU-1", "GPU-2"):
        holds(views, "nb", -5, 0, name)
    found = measure_savings(views, [acted()], rates("GPU-0", "GPU-1", "GPU-2"), NOW)
    assert kinds(found) == {"cash": 19, "sunk": 20, "released": 21}


def test_nothing_is_saved_once_it_came_back_and_starting_again_is_taken_off(views: Memory) -> None:
    device(views)
    holds(views, "nb", -5, 0)
    holds(views, "nb", 6, None)
    views.rows(
        "ledger",
        [
            {
                "cluster": "c",
                "bucket": at(6),
                "device": "GPU-0",
                "state": "startup",
                "namespace": "ml",
                "workload_kind": "Notebook",
                "workload": "nb",
                "gpu_seconds": 900.0,
                "usd": Decimal("0.625"),
                "priced": True,
            }
        ],
    )
    (entry,) = measure_savings(views, [acted(back=6, is_reversed=True)], rates("GPU-0"), NOW)
    assert round(entry.gpu_hours, 6) == 5.75
    assert entry.usd == Decimal("14.375")
    assert entry.restart_usd == Decimal("0.625")
    assert entry.is_reversed


def test_a_share_of_a_device_saves_its_share_and_neighbours_are_not_served(views: Memory) -> None:
    device(views)
    holds(views, "nb", -5, 0, share=0.5)
    holds(views, "neighbour", -5, None, share=0.5)
    assert kinds(measure_savings(views, [acted()], rates("GPU-0"), NOW)) == {"released": 10}


def test_a_mig_instance_saves_its_part_of_the_board(views: Memory) -> None:
    device(views, weight=0.25)
    holds(views, "nb", -5, 0)
    (entry,) = measure_savings(views, [acted()], rates("GPU-0", weight=0.25), NOW)
    assert entry.gpu_hours == 5
    assert entry.usd == Decimal("12.5")


def test_without_a_price_hours_are_said_and_dollars_are_not(views: Memory) -> None:
    device(views)
    holds(views, "nb", -5, 0)
    (entry,) = measure_savings(views, [acted()], [], NOW)
    assert (entry.gpu_hours, entry.usd, entry.predicted_usd) == (20, None, None)


def test_an_action_on_what_held_nothing_saves_nothing(views: Memory) -> None:
    (entry,) = measure_savings(views, [acted()], [], NOW)
    assert (entry.gpu_hours, entry.usd, entry.predicted_gpu_hours) == (0, Decimal(0), 0)
    assert measure_savings(views, [], [], NOW) == []


def past(views: Memory, *lengths: float, end: float = -3) -> None:
    views.rows(
        "finding",
        [
            {
                "id": f"f{n}",
                "analyzer": "idle",
                "verdict": "idle",
                "cluster": "c",
                "namespace": "ml",
                "workload_kind": "Notebook",
                "workload": f"w{n}",
                "start": at(end - length),
                "end": at(end),
            }
            for n, length in enumerate(lengths)
        ],
    )


def test_the_prediction_is_what_past_stretches_would_have_lasted(views: Memory) -> None:
    device(views)
    holds(views, "nb", -5, 0)
    past(views, *[4.0] * 5, *[12.0] * 5)
    (entry,) = measure_savings(views, [acted()], rates("GPU-0"), NOW)
    # Idle for 2 h: half of them end after 2 h more, half after 10 h more.
    assert entry.predicted_gpu_hours == pytest.approx(6.0)
    assert entry.predicted_usd == Decimal(15)


def test_a_stretch_that_we_ended_says_only_that_it_lasted_so_long(views: Memory) -> None:
    device(views)
    holds(views, "nb", -5, 0)
    past(views, 12.0, end=0)
    views.engine.execute("update finding set workload = 'nb'")
    (entry,) = measure_savings(views, [acted()], rates("GPU-0"), NOW)
    # It was 12 h old, and nothing older is known: half an end since 6 h, of 20 h more until now.
    left = 1 - 0.5 / np.log(2)
    assert entry.predicted_gpu_hours == pytest.approx(12 * ((32 / 12) ** left - 1) / left)


def test_what_a_moving_window_found_again_and_again_is_one_stretch(views: Memory) -> None:
    device(views)
    holds(views, "nb", -5, 0)
    # A window of 10 h, moved on by 4 h: the verdict on a stretch of 30 h begins anew each time.
    for seen in range(10, 34, 4):
        past(views, *[10.0] * 10, end=-33 + min(seen, 30))
    (entry,) = measure_savings(views, [acted()], rates("GPU-0"), NOW)
    assert entry.predicted_gpu_hours == pytest.approx(20.0)  # 28 h more are certain by the past


def test_nothing_is_predicted_without_a_past(views: Memory) -> None:
    device(views)
    holds(views, "nb", -5, 0)
    (entry,) = measure_savings(views, [acted()], rates("GPU-0"), NOW)
    assert entry.predicted_gpu_hours == 0


spans = st.tuples(st.floats(0, 19), st.floats(0.1, 10))


@settings(max_examples=15)
@given(
    others=st.lists(spans, max_size=4),
    seen=st.floats(0, 20),
    listed=st.one_of(st.none(), st.floats(0, 20)),
    share=st.sampled_from([0.25, 0.5, 1.0]),
    weight=st.sampled_from([1 / 7, 0.5, 1.0]),
    provider=st.sampled_from(["aws", "other"]),
    term=st.sampled_from(["on-demand", "reserved", None]),
)
def test_every_second_is_of_one_kind_and_dollars_never_exceed_what_the_devices_cost(  # noqa: PLR0917
    others: list[tuple[float, float]],
    seen: float,
    listed: float | None,
    share: float,
    weight: float,
    provider: str,
    term: str | None,
) -> None:
    memory = Memory()
    try:
        device(memory, seen=seen, weight=weight, provider=provider, capacity_type=term)
        if listed is not None:
            inventory(memory, listed)
        holds(memory, "nb", -5, 0, share=share)
        begin = 0.0
        for gap, length in others:
            start = begin + gap / 4
            begin = start + length / 2
            holds(memory, f"o{start}", start, begin, share=share)
        entries = measure_savings(memory, [acted()], rates("GPU-0", weight=weight), NOW)
    finally:
        memory.engine.close()
    assert all(e.gpu_hours >= -1e-9 for e in entries)
    known = sum(e.gpu_hours for e in entries)
    unknown = sum(e.unknown_gpu_hours for e in entries)
    assert known + unknown == pytest.approx(share * weight * 20)
    paid = sum((e.usd for e in entries if e.usd is not None), Decimal())
    assert paid <= RATE * Decimal(repr(share * weight * 20)) + Decimal("0.000001")


@given(
    st.lists(st.tuples(st.floats(0.1, 100), st.booleans()), min_size=1, max_size=30),
    st.floats(0, 120),
    st.floats(0.1, 200),
)
def test_the_expected_rest_is_within_the_horizon_and_what_history_shows(
    stretches: list[tuple[float, bool]], age: float, horizon: float
) -> None:
    lengths = np.array([s[0] for s in stretches])
    ended = np.array([s[1] for s in stretches])
    rest = compute_expected_rest(lengths, ended, age, horizon)
    assert 0 <= rest <= horizon + 1e-9
    if ended[lengths == lengths.max()].all() and age < lengths.max():
        assert rest <= lengths.max() - age + 1e-9, "everything ended by then"
    _, alive = compute_survival(lengths, ended)
    assert (np.diff(alive) <= 1e-12).all()


def test_without_censoring_the_expected_rest_is_the_mean_of_those_that_last() -> None:
    lengths = np.array([1.0, 2.0, 3.0, 8.0])
    ended = np.ones(4, dtype=bool)
    assert compute_expected_rest(lengths, ended, 0.0, 100.0) == pytest.approx(3.5)
    assert compute_expected_rest(lengths, ended, 2.0, 100.0) == pytest.approx((0 + 1 + 6) / 3)
    assert compute_expected_rest(lengths, ended, 2.0, 3.0) == pytest.approx((0 + 1 + 3) / 3)
    assert compute_expected_rest(lengths, ended, 8.0, 3.0) == 0


def test_what_outlasts_history_goes_on_at_the_rate_at_which_the_old_end() -> None:
    lengths, ended = np.array([4.0, 8.0, 12.0]), np.array([True, True, False])
    less = 1 / (np.log(8 / 6) + np.log(12 / 6)) - 1  # old from 6 h on: one of two ended
    tail = 12 * (1 - (18 / 12) ** -less) / less
    assert compute_expected_rest(lengths, ended, 12.0, 6.0) == pytest.approx(tail)
    before = 2 + tail * 1.0
    assert compute_expected_rest(lengths, ended, 10.0, 8.0) == pytest.approx(before)
    left = 1 - 0.5 / np.log(2)
    assert compute_expected_rest(np.array([10.0]), np.array([False]), 10.0, 1.0) == pytest.approx(
        10 * (1.1**left - 1) / left
    ), "half an end since half of its age, where none was seen"


def test_a_week_of_forgetting_is_not_carried_on_at_the_rate_of_lunch_breaks() -> None:
    lengths = np.array([1.0] * 500 + [168.0] * 2)
    ended = np.array([True] * 500 + [False] * 2)
    assert compute_expected_rest(lengths, ended, 168.0, 24.0) > 23


def second(at_h: float, who: str = "train", back: float | None = None) -> MeasuredAction:
    return MeasuredAction(
        action="b",
        policy="p",
        cluster="c",
        namespace="ml",
        workload_kind="Notebook",
        workload=who,
        at=ACT + timedelta(hours=at_h),
        returned_at=None if back is None else ACT + timedelta(hours=back),
        idle_since=ACT,
    )


def test_what_is_stopped_where_another_was_stopped_saves_no_hour_twice(views: Memory) -> None:
    device(views)
    holds(views, "nb", -5, 0)
    holds(views, "train", 4, 12)
    first, *rest = measure_savings(views, [acted(), second(12)], rates("GPU-0"), NOW)
    assert (first.action, first.kind, round(first.gpu_hours, 6)) == ("a", "served", 8)
    assert [(e.action, e.kind, round(e.gpu_hours, 6)) for e in rest] == [
        ("a", "released", 4),
        ("b", "released", 8),
    ]
    assert first.held_gpu_hours == pytest.approx(12)


def test_an_earlier_stop_goes_on_once_the_later_one_came_back(views: Memory) -> None:
    device(views)
    holds(views, "nb", -5, 0)
    holds(views, "train", 4, 12)
    holds(views, "train", 15, None)
    found = measure_savings(views, [acted(), second(12, back=15)], rates("GPU-0"), NOW)
    assert {(e.action, e.kind): round(e.gpu_hours, 6) for e in found} == {
        ("a", "served"): 13,
        ("a", "released"): 4,
        ("b", "released"): 3,
    }


def test_nothing_is_claimed_once_nobody_looks_any_more(views: Memory) -> None:
    device(views)
    holds(views, "nb", -5, 0)
    past(views, *[30.0] * 10)
    (entry,) = measure_savings(views, [acted(until=ACT + timedelta(hours=6))], rates("GPU-0"), NOW)
    assert (entry.gpu_hours, entry.end) == (6, ACT + timedelta(hours=6))
    assert entry.predicted_gpu_hours == pytest.approx(6)


stops = st.lists(
    st.tuples(st.floats(0, 18), st.sampled_from([0.25, 0.5, 1.0]), st.floats(0.01, 10)),
    min_size=1,
    max_size=6,
)


@settings(max_examples=15)
@given(stops)
def test_actions_together_never_save_more_than_their_devices_cost(
    many: list[tuple[float, float, float]],
) -> None:
    memory = Memory()
    try:
        device(memory)
        acts = []
        for n, (when, share, length) in enumerate(many):
            holds(memory, f"w{n}", max(-1.0, when - 1), when, share=share)
            one = second(when, f"w{n}", when + length)
            acts.append(msgspec.structs.replace(one, action=f"a{n}"))
        entries = measure_savings(memory, acts, rates("GPU-0"), NOW)
    finally:
        memory.engine.close()
    first = min(a.at for a in acts)
    hours = (NOW - first).total_seconds() / 3600
    assert all(e.gpu_hours >= -1e-9 for e in entries)
    assert sum(e.gpu_hours for e in entries) <= hours + 1e-6
    assert sum(e.held_gpu_hours for e in entries) <= hours + 1e-6
    for act in acts:
        mine = [e for e in entries if e.action == act.action]
        assert sum(e.gpu_hours for e in mine) <= sum(e.held_gpu_hours for e in mine) + 1e-9
        usd = sum((e.usd or Decimal() for e in mine), Decimal())
        assert usd <= sum((e.held_usd or Decimal() for e in mine), Decimal())
