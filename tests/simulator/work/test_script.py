"""What pods do over time, and when a stop would lose work."""

from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.models import STATES, Holder
from simulator.work.behaviours import Script, WorkPlan, build_script, read_behaviours, resume
from simulator.work.chance import Array
from simulator.work.host import sample_host
from simulator.work.kinds import read_kinds

MONDAY = 1_789_948_800.0
"""2026-09-21 00:00 UTC."""
HOLDER = Holder("u", "ns", "pod", "main", "Job", "job", "team")


def ticks(begin: float, hours: float) -> Array:
    return begin + 30.0 * np.arange(round(hours * 120), dtype=np.float64)


def places(ran: Script, over: Array, *names: str) -> npt.NDArray[np.intp]:
    sample = ran.play(over)
    return np.flatnonzero(np.isin(sample.kind[0], [read_kinds().number(name) for name in names]))


def state(ran: Script, over: Array) -> list[str]:
    return [STATES[number] for number in ran.play(over).state[0]]


@given(
    name=st.sampled_from(sorted(read_behaviours())),
    seed=st.integers(0, 2**64 - 1),
    begin=st.integers(-200, 4000),
    cuts=st.lists(st.integers(1, 999), max_size=4),
)
@settings(max_examples=40)
def test_cutting_a_stretch_into_blocks_changes_nothing(
    name: str, seed: int, begin: int, cuts: list[int]
) -> None:
    plan = WorkPlan(name, seed, ranks=6)
    over = MONDAY + 30.0 * (begin + np.arange(1000, dtype=np.float64))
    whole = build_script(plan, MONDAY).play(over)
    pieces = build_script(plan, MONDAY)
    edges = [0, *sorted(set(cuts)), 1000]
    samples = [pieces.play(over[a:b]) for a, b in pairwise(edges)]
    # Asked again, out of order and for other ranks, it is still the same.
    again = pieces.play(over[:5], range(2, 4))
    for field in ("kind", "busy", "sm", "now", "memory", "state"):
        joined = np.concatenate([getattr(sample, field) for sample in samples], axis=1)
        np.testing.assert_array_equal(joined, getattr(whole, field), err_msg=field)
        np.testing.assert_array_equal(getattr(again, field), getattr(whole, field)[2:4, :5])
    np.testing.assert_array_equal(
        np.concatenate([sample.stop_harms for sample in samples]), whole.stop_harms
    )


def test_every_pod_starts_without_compute_and_its_memory_grows() -> None:
    ran = build_script(WorkPlan("serving", 3, params={"pull_s": 120, "load_s": 300}), MONDAY)
    over = ticks(MONDAY, 0.25)
    sample = ran.play(over)
    starting = over < ran.startup_until_s
    assert ran.startup_until_s == MONDAY + 420
    assert set(np.array(state(ran, over))[starting]) == {"startup"}
    assert "startup" not in np.array(state(ran, over))[~starting]
    assert not sample.busy[0][starting].any()
    assert sample.stop_harms[starting].all()
    loading = sample.memory[0][(over >= MONDAY + 120) & starting]
    assert (np.diff(loading) > 0).all()
    # A server takes its share at once and keeps it, requests or not.
    assert 0.8 < sample.memory[0][-1] == sample.memory[0][~starting][0]


def test_training_loses_what_it_did_since_its_last_checkpoint() -> None:
    params = {"checkpoint_every_s": 3600.0, "checkpoint_s": 60.0, "wait_s": 0.0, "input_share": 0.0}
    ran = build_script(WorkPlan("training", 1, work_s=86_400, params=params), MONDAY)
    first, second = ran.checkpoints(MONDAY, MONDAY + 3 * 3600)[:2]
    assert 3600 * 0.9 < second - first < 3600 * 1.2
    assert ran.unsaved_s(first + 1) == pytest.approx(1)
    # A checkpoint that is still being written saves nothing.
    assert ran.unsaved_s(second - 1) > 3000
    assert ran.unsaved_s(second - 120) == pytest.approx(second - first - 120, abs=80)
    assert ran.stop_harms(ticks(ran.startup_until_s, 20)).all()
    assert set(np.unique(state(ran, ticks(ran.startup_until_s, 20)))) == {"low", "productive"}


def test_a_job_that_goes_on_repeats_what_was_lost_and_no_more() -> None:
    plan = WorkPlan("training", 4, work_s=40_000, params={"checkpoint_every_s": 9000})
    ran = build_script(plan, MONDAY)
    stop = ran.checkpoints(MONDAY, MONDAY + 86_400)[0] + 5000
    lost = ran.unsaved_s(stop)
    after = resume(ran, stop)
    assert lost > 1000
    assert after.replay_s == pytest.approx(lost)
    again = build_script(after, stop)
    over = ticks(stop, 24)
    repeated = np.array(state(again, over)) == "lost"
    assert repeated.any()
    assert again.timeline.progress_at(over)[repeated].max() < lost
    # Killed half way through, the rest of the repetition is still to come.
    half = again.startup_until_s + lost / 2
    assert resume(again, half).replay_s == pytest.approx(lost)
    assert ran.done_s is not None
    assert after.work_s == pytest.approx(40_000 - ran.timeline.saved_at(np.array([stop]))[0])


@pytest.mark.parametrize("name", ["training", "batch", "straggling training"])
def test_finite_work_is_done_after_its_seconds_at_full_speed(name: str) -> None:
    ran = build_script(WorkPlan(name, 2, work_s=7200), MONDAY)
    assert ran.done_s is not None
    assert ran.done_s - ran.startup_until_s > 7200 * 0.99
    at = np.array([ran.done_s - 1, ran.done_s + 30])
    assert ran.timeline.progress_at(at).tolist() == pytest.approx([7200, 7200], abs=2)
    assert ran.stop_harms(at).tolist() == [True, False]


def test_a_kept_cluster_is_idle_with_its_memory_when_the_work_is_done() -> None:
    ran = build_script(WorkPlan("finished but kept", 2, ranks=4, work_s=7200), MONDAY)
    assert ran.done_s is None
    later = ticks(MONDAY + 86_400, 1)
    assert set(state(ran, later)) == {"idle"}
    assert not ran.stop_harms(later).any()
    assert (ran.play(later).memory > 0.04).all()
    assert ran.unsaved_s(MONDAY + 86_400) == 0


@pytest.mark.parametrize(
    ("name", "truth", "busy"), [("hung training", "idle", 0.0), ("spinning training", "lost", 1.0)]
)
def test_a_hung_job_makes_no_progress_and_would_lose_nothing(
    name: str, truth: str, busy: float
) -> None:
    ran = build_script(WorkPlan(name, 6, work_s=1e6), MONDAY)
    over = ticks(MONDAY + 10 * 3600, 4)
    sample = ran.play(over)
    assert set(state(ran, over)) == {truth}
    assert sample.busy.mean() == pytest.approx(busy, abs=0.02)
    assert sample.sm.max() < 0.1  # a collective's wait keeps few SMs busy
    assert not sample.stop_harms.any()
    assert np.ptp(ran.timeline.progress_at(over)) == 0
    assert ran.done_s is None


def test_an_idle_rank_is_idle_in_a_gang_that_would_be_hurt() -> None:
    sample = build_script(WorkPlan("idle rank", 1, ranks=4), MONDAY).play(ticks(MONDAY + 3600, 6))
    assert sample.busy[:3].mean() > 0.5
    assert set(np.unique(sample.state[3])) == {STATES.index("idle")}
    assert sample.memory[3].max() < 0.02 < sample.memory[0].min()
    assert sample.stop_harms.all()


def test_others_wait_for_a_straggler() -> None:
    plan = WorkPlan("straggling training", 1, ranks=3, params={"straggle": 0.5, "input_share": 0})
    ran, even = build_script(plan, MONDAY), build_script(WorkPlan("training", 1, ranks=3), MONDAY)
    sample = ran.play(ticks(MONDAY + 3600, 0.2))
    assert sample.sm[1].mean() == pytest.approx(sample.sm[2].mean(), rel=0.1)
    assert 0.4 < sample.sm[1].mean() / sample.sm[0].mean() < 0.65
    assert sample.busy[1].mean() == pytest.approx(sample.busy[0].mean(), rel=0.1)
    hour = np.array([MONDAY + 3600])
    assert ran.timeline.progress_at(hour)[0] < 0.6 * even.timeline.progress_at(hour)[0]


def test_preparing_on_the_cpu_is_idle_for_the_gpu_and_hurts() -> None:
    ran = build_script(WorkPlan("preparing training", 1), MONDAY)
    over = ticks(ran.startup_until_s, 0.9)
    assert set(state(ran, over)) == {"idle"}
    assert ran.stop_harms(over).all()
    assert ran.cpu_cores(over).min() > 4


def test_a_day_notebook_rests_at_night_and_on_weekends() -> None:
    busy = np.stack(
        [
            build_script(WorkPlan("day notebook", n), MONDAY).play(ticks(MONDAY, 168)).busy[0]
            for n in range(30)
        ]
    )
    by_hour = (busy > 0).reshape(30, 7, 24, 120).mean(axis=(0, 3))
    assert by_hour[:5, 10:17].min() > 0.1
    assert by_hour[:, 1:7].max() < 0.12  # but for cells left running overnight
    assert by_hour[5:, 12:].max() < 0.02


def test_an_idle_notebook_on_a_volume_does_not_hurt_and_a_busy_kernel_does() -> None:
    over = ticks(MONDAY, 72)
    ran = build_script(WorkPlan("day notebook", 9), MONDAY)
    busy = ran.kernel_busy(over)
    assert busy is not None
    assert busy.any()
    settled = over >= ran.startup_until_s
    np.testing.assert_array_equal(ran.stop_harms(over)[settled], busy[settled])
    # A cell that computes on the CPU hurts, too, though the GPU rests.
    on_cpu = places(ran, over, "cpu cell")
    assert set(np.array(state(ran, over))[on_cpu]) == {"idle"}
    unsaved = build_script(WorkPlan("day notebook", 9, params={"pvc": 0}), MONDAY)
    assert unsaved.stop_harms(over)[np.flatnonzero(busy)[0] :].all()


def test_a_silent_cell_leaves_its_last_activity_behind() -> None:
    ran = build_script(WorkPlan("day notebook", 9), MONDAY)
    over = ticks(MONDAY + 8 * 3600, 12)
    busy, last = ran.kernel_busy(over), ran.kernel_last(over)
    assert busy is not None
    assert last is not None
    assert (last <= over).all()
    change = np.flatnonzero(busy[1:] != busy[:-1]) + 1
    assert (over[change] - last[change] < 30).all()
    assert (over - last)[busy].max() > 60


def test_training_from_a_terminal_leaves_the_kernel_idle() -> None:
    ran = build_script(WorkPlan("terminal notebook", 1, params={"attendance": 1}), MONDAY)
    over = ticks(MONDAY + 3600, 20)
    working = places(ran, over, "terminal", "terminal cpu")
    assert len(working) > 100
    assert ran.stop_harms(over)[working].all()
    kernel, terminal, served = ran.kernel_busy(over), ran.terminal_last(over), ran.server_last(over)
    assert kernel is not None
    assert not kernel.any()
    assert terminal is not None
    assert served is not None
    # It prints nothing: hours into the run the terminal's last activity is its start.
    assert (over - terminal)[working].max() > 1800
    np.testing.assert_array_equal(served, terminal)


def test_an_open_tab_keeps_the_server_fresh_and_no_kernel_runs() -> None:
    ran = build_script(WorkPlan("open-tab notebook", 3), MONDAY)
    later = MONDAY + 3 * 86_400
    sample = sample_host(HOLDER, ran, later)
    assert sample.kernel_busy is False
    assert sample.server_last_activity == sample.at
    assert sample.kernel_last_activity is not None
    assert (sample.at - sample.kernel_last_activity).total_seconds() > 86_400
    assert not ran.stop_harms(np.array([later])).any()


def test_who_leaves_a_notebook_keeps_its_context_and_who_never_used_it_has_none() -> None:
    later = ticks(MONDAY + 3 * 86_400, 1)
    left, unused = (
        build_script(WorkPlan(f"{n} notebook", 2), MONDAY) for n in ("abandoned", "unused")
    )
    assert set(state(left, later)) == set(state(unused, later)) == {"idle"}
    assert places(left, later, "idle").size == places(unused, later, "bare").size == len(later)
    assert left.play(later).memory.min() > 0.03
    assert unused.play(later).memory.max() == 0
    assert left.play(ticks(MONDAY, 4)).busy.max() > 0.05


def test_a_server_hurts_while_it_serves_and_before_its_next_request() -> None:
    ran = build_script(WorkPlan("serving", 5), MONDAY)
    over = ticks(MONDAY + 86_400, 24)
    running, total = ran.requests_running(over), ran.requests_total(over)
    assert running is not None
    assert total is not None
    serves = ran.play(over).busy[0] > 0
    np.testing.assert_array_equal(running > 0, serves)
    assert (np.diff(total) >= 0).all()
    assert total[-1] > total[0]
    soon = np.array([serves[i : i + 61].any() for i in range(len(over) - 61)])
    harms = ran.stop_harms(over)[: len(soon)]
    assert harms[serves[: len(soon)]].all()
    assert (harms != soon).mean() < 0.02  # requests between two ticks
    assert not harms.all()


@pytest.mark.parametrize("name", ["forgotten serving", "unused serving"])
def test_a_model_without_traffic_stays_in_memory_and_does_not_hurt(name: str) -> None:
    ran = build_script(WorkPlan(name, 5), MONDAY)
    over = ticks(MONDAY + 10 * 3600, 48)
    sample = ran.play(over)
    assert not sample.stop_harms.any()
    assert sample.memory.min() > 0.8
    total = ran.requests_total(over)
    assert total is not None
    assert np.ptp(total) == 0


def test_a_night_batch_works_at_night_and_holds_by_day() -> None:
    ran = build_script(WorkPlan("night batch", 1, params={"tz_h": 2}), MONDAY)
    by_hour = ran.play(ticks(MONDAY + 86_400, 48)).busy[0].reshape(2, 24, 120).mean(axis=(0, 2))
    assert by_hour[2:4].min() > 0.4  # local 4 to 6
    assert by_hour[8:21].max() == 0
    assert not ran.stop_harms(ticks(MONDAY + 86_400 + 10 * 3600, 8)).any()


def test_an_idle_pod_is_at_rest_on_its_host() -> None:
    over = ticks(MONDAY + 3 * 86_400, 2)
    ran = build_script(WorkPlan("forgotten serving", 5), MONDAY)
    assert ran.cpu_cores(over).max() < 0.02
    assert sum(ran.net(over)).max() < 5000  # type: ignore[union-attr]


def test_a_starved_loader_is_throttled_while_its_gpus_wait_for_it() -> None:
    starved, other = (play_hours(name) for name in ("starved training", "input-bound training"))
    assert 0.5 <= starved.max() <= 0.8
    assert (starved > 0).mean() > 0.8
    assert not other.any()


def play_hours(behaviour: str) -> Array:
    """Return the throttled share of a pod's hours after its start, tick by tick."""
    at = MONDAY + 3600 + 30.0 * np.arange(960, dtype=np.float64)
    return build_script(WorkPlan(behaviour, 3), MONDAY).cpu_throttled(at)


def test_a_decoding_server_works_day_and_night() -> None:
    at = MONDAY + 3600 + 300.0 * np.arange(3 * 288, dtype=np.float64)
    busy = build_script(WorkPlan("decoding serving", 3), MONDAY).play(at).busy[0].reshape(-1, 12)
    assert busy.mean() > 0.5
    assert (busy.mean(axis=1) > 0.2).mean() > 0.9


def test_an_offloading_job_is_zero_to_a_gauge_in_83_percent_of_the_samples() -> None:
    script = build_script(WorkPlan("offloading training", 3, ranks=8), MONDAY)
    over = MONDAY + 7200 + 30.0 * np.arange(2880, dtype=np.float64)
    played = script.play(over, range(8))
    computes = played.kind == read_kinds().number("offload")
    assert computes.mean() > 0.9
    assert (played.now[computes] == 0).mean() == pytest.approx(0.83, abs=0.01)
    assert set(np.unique(played.state[computes])) == {STATES.index("low")}


def test_a_wedged_server_keeps_its_requests_and_answers_none() -> None:
    script = build_script(WorkPlan("wedged serving", 3), MONDAY)
    late = MONDAY + 3 * 3600 + 30.0 * np.arange(240, dtype=np.float64)
    played = script.play(late)
    assert set(np.unique(played.state)) == {STATES.index("lost")}
    assert played.busy.min() > 0.95
    running, total = script.requests_running(late), script.requests_total(late)
    assert running is not None
    assert total is not None
    assert running.min() >= 1
    assert np.ptp(total) == 0 < total[0]
