"""The replay on sites so small that every wait is known by hand, and its laws on any site."""

from itertools import combinations
from math import inf
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from capacity.history.queue_history import NodeOutage
from capacity.replay.measures import compute_jain, measure_replay
from capacity.replay.records import (
    ReplayPause,
    ReplayQueue,
    ReplayResult,
    ReplaySite,
    ReplayUnit,
    SchedulerKind,
)
from capacity.replay.replay import replay
from tests.capacity.replay.sites import HOUR, build_site, build_unit


def list_starts(result: ReplayResult) -> dict[str, float | None]:
    """Return the first start of each unit in hours."""
    starts = {unit.unit.name: unit.start_s for unit in result.units}
    return {name: None if at is None else at / HOUR for name, at in starts.items()}


def test_three_jobs_on_two_nodes_wait_as_on_paper() -> None:
    # n0: x 0-4; n1: y 1-3, then z (arrived at 2) 3-5. Waits 0, 0, 1 h. Used 8 of 20 GPU-hours.
    site = build_site([build_unit("x", 0, 4), build_unit("y", 1, 2), build_unit("z", 2, 2)])
    result = replay(site)
    assert list_starts(result) == {"x": 0, "y": 1, "z": 3}
    measures = measure_replay(result)
    assert list(measures.by_hour) == [0.5, 1, 1, 1, 0.5, 0, 0, 0, 0, 0]
    assert measures.utilisation == 8 / 20
    assert (measures.waits.p50_s, measures.waits.mean_s) == (0, HOUR / 3)
    assert measures.waits.p95_s == pytest.approx(0.9 * HOUR)
    assert measures.completion_mean_s == (4 + 2 + 3) / 3 * HOUR
    assert (measures.preemptions, measures.lost_gpu_hours) == (0, 0)


def test_a_higher_priority_evicts_and_the_work_is_done_again() -> None:
    low, high = build_unit("low", 0, 4), build_unit("high", 1, 2, priority=5, team="b")
    result = replay(build_site([low, high], nodes=(1,)))
    # low 0-1 (lost), high 1-3, low again 3-7.
    results = {unit.unit.name: unit for unit in result.units}
    assert (results["high"].start_s, results["high"].end_s) == (HOUR, 3 * HOUR)
    assert (results["low"].start_s, results["low"].end_s) == (0, 7 * HOUR)
    assert (results["low"].preemptions, results["low"].lost_gpu_seconds) == (1, HOUR)
    calm = replay(build_site([low, high], nodes=(1,), preempts=False))
    assert list_starts(calm) == {"low": 0, "high": 4}


@pytest.mark.parametrize(("gpus", "starts"), [(None, 6), (1, 4)])
def test_what_is_away_takes_no_pod_until_it_is_back(gpus: int | None, starts: float) -> None:
    """Of two GPUs x holds one until 4; what fails from 1 to 6 h takes the free ones."""
    site = build_site([build_unit("x", 0, 4), build_unit("y", 2, 1)], nodes=(2,))
    outage = NodeOutage("c", "n0", HOUR, 6 * HOUR, gpus)
    nodes = tuple(msgspec.structs.replace(node, outages=(outage,)) for node in site.nodes)
    result = replay(msgspec.structs.replace(site, nodes=nodes))
    assert list_starts(result) == {"x": 0, "y": starts}


def test_what_begins_with_the_window_goes_where_it_went() -> None:
    x = msgspec.structs.replace(build_unit("x", 0, 4), first_nodes=("n0",))
    y = msgspec.structs.replace(build_unit("y", 0, 4), first_nodes=("n1",))
    wide = build_unit("z", 1, 1, gpus=2)  # beside both of them on one node it would start at 1
    assert list_starts(replay(build_site([x, y, wide], nodes=(2, 2)))) == {"x": 0, "y": 0, "z": 4}


def test_a_gang_starts_whole_and_smaller_work_passes_it() -> None:
    units = [build_unit("x", 0, 4), build_unit("gang", 1, 1, pods=2), build_unit("y", 2, 1)]
    # The gang needs both nodes: x holds one until 4. y starts at 2 on the other.
    assert list_starts(replay(build_site(units))) == {"x": 0, "gang": 4, "y": 2}


def test_a_queue_borrows_what_its_cohort_leaves_and_gives_it_back() -> None:
    queues = tuple(ReplayQueue(name, 1000, cohort="all") for name in ("a", "b"))
    units = [
        build_unit("a1", 0, 4, queue="a"), build_unit("a2", 0.5, 4, queue="a"),
        build_unit("b1", 1, 2, queue="b", team="b"),
    ]  # fmt: skip
    result = replay(build_site(units, scheduler="kueue", queues=queues))
    # a2 borrows b's GPU from 0.5, b reclaims it at 1, a2 starts anew at 3.
    assert list_starts(result) == {"a1": 0, "a2": 0.5, "b1": 1}
    (victim,) = (unit for unit in result.units if unit.preemptions)
    assert (victim.unit.name, victim.end_s, victim.lost_gpu_seconds) == ("a2", 7 * HOUR, HOUR / 2)
    calm = replay(build_site(units, scheduler="kueue", queues=queues, preempts=False))
    assert list_starts(calm)["b1"] == 4
    alone = tuple(ReplayQueue(name, 1000) for name in ("a", "b"))
    alone_result = replay(build_site(units, scheduler="kueue", queues=alone))
    assert list_starts(alone_result) == {"a1": 0, "a2": 4, "b1": 1}


@pytest.mark.parametrize(("limit", "start"), [(None, 0.5), (0, 4)], ids=["open", "closed"])
def test_a_queue_borrows_through_cohorts_of_cohorts_as_far_as_each_may(
    limit: int | None, start: float
) -> None:
    """The quota of b is of another cohort: a2 has it if its own cohort may borrow."""
    queues = (
        ReplayQueue("a", 1000, cohort="left"),
        ReplayQueue("b", 1000, cohort="right"),
        ReplayQueue("left", 0, limit, cohort="all", is_cohort=True),
        ReplayQueue("right", 0, cohort="all", is_cohort=True),
    )
    units = [build_unit("a1", 0, 4, queue="a"), build_unit("a2", 0.5, 4, queue="a")]
    result = replay(build_site(units, scheduler="kueue", queues=queues))
    assert list_starts(result) == {"a1": 0, "a2": start}


def test_the_queue_with_the_least_of_its_share_is_next() -> None:
    queues = (ReplayQueue("a", 2000), ReplayQueue("b", 1000))
    units = [
        *(build_unit(f"a{n}", 0, 2, queue="a") for n in range(4)),
        build_unit("b1", 0.5, 2, queue="b", team="b"),
    ]
    result = replay(
        build_site(units, nodes=(3,), scheduler="volcano", queues=queues, preempts=False)
    )
    # a0-a2 fill the node. At 2 both queues hold nothing: a3 is older, then b1.
    assert list_starts(result) == {"a0": 0, "a1": 0, "a2": 0, "a3": 2, "b1": 2}
    eager = replay(build_site(units, nodes=(3,), scheduler="volcano", queues=queues))
    # b1 is below its share, and a keeps its two GPUs without its third.
    assert list_starts(eager)["b1"] == 0.5
    assert sum(unit.preemptions for unit in eager.units) == 1


def test_a_unit_that_is_withdrawn_or_still_waits_has_no_invented_start() -> None:
    units = [
        build_unit("x", 0, 20), build_unit("gone", 1, 1, leave_h=3), build_unit("late", 2, 1),
    ]  # fmt: skip
    result = replay(build_site(units, nodes=(1,)))
    assert list_starts(result) == {"x": 0, "gone": None, "late": None}
    waits = measure_replay(result).waits
    assert (waits.count, waits.still_waiting, waits.p95_is_bound) == (2, 1, True)


def test_jains_index_is_one_for_equal_shares_and_one_nth_for_one_winner() -> None:
    assert compute_jain([3, 3, 3]) == 1
    assert compute_jain([5, 0]) == 0.5
    assert compute_jain([]) is None


UNITS: st.SearchStrategy[list[dict[str, Any]]] = st.lists(
    st.builds(
        dict,
        arrival_h=st.integers(0, 12), run_h=st.integers(1, 6), gpus=st.integers(1, 3),
        priority=st.integers(0, 1), queue=st.sampled_from(["a", "b"]), pods=st.integers(1, 2),
    ),
    max_size=14,
)  # fmt: skip
QUEUES = tuple(ReplayQueue(name, 2000, cohort="all") for name in ("a", "b"))


def build_any(units: list[dict[str, Any]], scheduler: SchedulerKind) -> ReplaySite:
    named = [build_unit(f"u{n}", **unit) for n, unit in enumerate(units)]
    return build_site(named, nodes=(3, 2), hours=60, scheduler=scheduler, queues=QUEUES)


@given(UNITS, st.sampled_from(["plain", "kueue", "volcano"]))
def test_no_device_serves_two_pods_at_once_and_equal_input_gives_equal_output(
    units: list[dict[str, Any]], scheduler: SchedulerKind
) -> None:
    site = build_any(units, scheduler)
    result = replay(site)
    for one, other in combinations(result.runs, 2):
        if one.node == other.node and set(one.devices) & set(other.devices):
            assert one.end_s <= other.start_s or other.end_s <= one.start_s
    again = replay(msgspec.structs.replace(site, units=site.units))
    assert again == result


@given(UNITS)
def test_no_unit_waits_while_it_fits(units: list[dict[str, Any]]) -> None:
    """Work conserving: whoever waits at a time could not have been placed then."""
    result = replay(build_any([{**u, "pods": 1, "priority": 0} for u in units], "plain"))
    for unit in result.units:
        assert unit.start_s is not None
        need = unit.unit.members[0].gpus
        for at_s in {r.end_s for r in result.runs} | {unit.unit.arrival_s}:
            if unit.unit.arrival_s <= at_s < unit.start_s:
                held = {"n0": 0, "n1": 0}
                for run in result.runs:
                    if run.start_s <= at_s < run.end_s:
                        held[run.node] += len(run.devices)
                assert need > max(3 - held["n0"], 2 - held["n1"])


@given(UNITS, st.integers(1, 5), st.integers(1, 3))
def test_more_capacity_never_lowers_the_served_hours(
    units: list[dict[str, Any]], gpus: int, more: int
) -> None:
    """First in, first out, units of one GPU: at no time is less served."""
    named = [build_unit(f"u{n}", unit["arrival_h"], unit["run_h"]) for n, unit in enumerate(units)]
    served = [
        sum(run.gpu_seconds for run in replay(build_site(named, nodes=(size,), hours=15)).runs)
        for size in (gpus, gpus + more)
    ]
    assert served[1] >= served[0]


def stop(unit: ReplayUnit, *pauses: tuple[float, float]) -> ReplayUnit:
    """Return the unit with pauses in hours, its GPU-hours at 2 USD."""
    built = tuple(ReplayPause(after * HOUR, pause * HOUR, 2.0) for after, pause in pauses)
    return msgspec.structs.replace(unit, pauses=built)


def list_runs(result: ReplayResult) -> list[tuple[str, float, float]]:
    return [(run.unit, run.start_s / HOUR, run.end_s / HOUR) for run in result.runs]


def test_a_stop_frees_the_gpu_until_the_next_use() -> None:
    # x runs 0-1, is stopped, is needed again at 4; y has the GPU 1-5; x runs its last 2 h at 5-7.
    x = stop(build_unit("x", 0, 6), (1, 3))
    result = replay(build_site([x, build_unit("y", 0.5, 4)], nodes=(1,)))
    assert list_runs(result) == [("x", 0, 1), ("y", 1, 5), ("x", 5, 7)]
    stopped, _ = result.units
    assert (stopped.start_s, stopped.end_s, stopped.return_waits_s) == (0, 7 * HOUR, (HOUR,))
    measures = measure_replay(result)
    assert (measures.stopped, measures.return_wait_p95_s) == (1, HOUR)
    assert (measures.stops, measures.released_gpu_hours) == (1, 3)


def test_a_unit_that_comes_back_is_stopped_again() -> None:
    # Of its 9 h it needs no GPU in 1-4 and from 6 on. y has the GPU 1-5, so it comes back at 5, not
    # 4, works its 2 h, and is stopped at 7, with 3 h that it would have held: at 2 USD 3 h and 3 h.
    x = stop(build_unit("x", 0, 9), (1, 3), (6, inf))
    result = replay(build_site([x, build_unit("y", 0.5, 4)], nodes=(1,)))
    assert list_runs(result) == [("x", 0, 1), ("y", 1, 5), ("x", 5, 7)]
    assert [(s.at_s / HOUR, s.gpu_seconds / HOUR, s.usd) for s in result.stops] == [
        (1, 3, 6.0), (7, 3, 6.0),
    ]  # fmt: skip


def test_a_stop_frees_no_more_than_the_unit_would_have_held() -> None:
    # The pods would have run 2 and 4 h and are stopped at 1 for 2 h: 1 h and 2 h are free. The
    # other unit never ends; the window does, at 10.
    gang = stop(build_unit("gang", 0, 4, pods=2), (1, 2))
    gang = msgspec.structs.replace(gang, run_s=(2 * HOUR, 4 * HOUR))
    endless = stop(build_unit("endless", 0, inf), (4, inf))
    result = replay(build_site([gang, endless], nodes=(3,)))
    assert [s.gpu_seconds / HOUR for s in result.stops] == [3, 6]
    # 1 + 1, the last hour of one pod, 4 of the endless one. Nothing else waits: 4 + 2 + 10 - 9 = 7.
    assert measure_replay(result).gpu_hours == 7


def test_a_stop_after_an_eviction_counts_the_work_that_a_checkpoint_holds() -> None:
    # x works 0-2, is evicted for 1 h with all of it saved, and is stopped after 3 h of work, at 4.
    x = msgspec.structs.replace(stop(build_unit("x", 0, 6), (3, inf)), checkpoint_s=HOUR)
    high = build_unit("high", 2, 1, priority=5)
    result = replay(build_site([x, high], nodes=(1,)))
    assert list_runs(result) == [("x", 0, 2), ("high", 2, 3), ("x", 3, 4)]
    assert [s.gpu_seconds / HOUR for s in result.stops] == [3]


def test_a_stop_of_what_is_not_used_again_ends_it() -> None:
    x = stop(build_unit("x", 0, 6), (1, inf))
    result = replay(build_site([x, build_unit("y", 0.5, 4)], nodes=(1,)))
    assert [unit.end_s for unit in result.units] == [HOUR, 5 * HOUR]
    assert measure_replay(result).stopped == 0
