"""The oracle: patient as the policies, kind as the first figure asks, and from truth alone."""

from datetime import timedelta
from math import inf

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from actions.policy.model import Allow, Match, Policy, RecurringWindow, Stage
from fallow.settings.idle import IdleSettings
from runtime.experiments.simulation.idle_times import IdleTime, Observer, find_common_spans
from runtime.experiments.simulation.oracle import list_releases
from runtime.experiments.truth import gather, list_courses
from simulator.cluster.nodes import build_fleet
from simulator.models import TICK_S
from simulator.world import Spec, World

HOUR = 3600.0
START = 1_793_577_600.0  # Monday, 2026-11-02
IDLE = IdleSettings()  # an hour, services a day
TURNS = [hour * HOUR for hour in range(2, 72)]
END = 72 * HOUR


def policy(**more: object) -> Policy:
    answer: dict[str, object] = {
        "name": "notebooks",
        "mode": "enforce",
        "match": Match(analyzer=("idle",), kind=("idle_notebook",)),
        "stages": (
            Stage("observe"),
            Stage("notify"),
            Stage("grace", wait=timedelta(hours=4)),
            Stage("snapshot", parts=("manifest", "home"), required=True),
            Stage("act", do=("suspend",), verbs=("suspend", "stop", "scale to zero")),
        ),
    }
    return Policy(**{**answer, **more})  # type: ignore[arg-type]


def rest(**more: object) -> IdleTime:
    answer: dict[str, object] = {
        "key": ("Notebook", "lab", "nb"),
        "category": "abandoned",
        "family": "notebook",
        "gpus": 2.0,
        "begin_s": 1.5 * HOUR,
        "end_s": END,
        "wanted_s": inf,
        "leaves_s": inf,
        "files": False,
        "memory": False,
    }
    return IdleTime(**{**answer, **more})  # type: ignore[arg-type]


def acts(found: IdleTime, rule: Policy | None = None) -> list[tuple[float, float]]:
    made = list_releases([found], [rule or policy()], TURNS, END, idle=IDLE)
    return [(r.at_s / HOUR, r.until_s / HOUR) for r in made]


def test_it_waits_for_the_minimum_duration_a_turn_and_the_grace() -> None:
    # At rest from 1:30, ripe at 2:30, seen at 3:00, four hours of grace.
    assert acts(rest()) == [(7.0, 72.0)]
    assert acts(rest(begin_s=2.0 * HOUR)) == [(7.0, 72.0)]
    assert acts(rest(begin_s=2.0 * HOUR + 1)) == [(8.0, 72.0)]


def test_without_a_grace_first_sight_still_only_warns() -> None:
    steps = tuple(r for r in policy().stages if r.step != "grace")
    assert acts(rest(), policy(stages=steps)) == [(4.0, 72.0)]


def test_it_leaves_out_what_is_wanted_within_the_least_rest() -> None:
    assert acts(rest(wanted_s=11.0 * HOUR, end_s=11.0 * HOUR)) == []
    assert acts(rest(wanted_s=11.5 * HOUR, end_s=11.5 * HOUR)) == [(7.0, 11.5)]


def test_a_rest_that_ends_before_the_grace_is_over_is_none() -> None:
    assert acts(rest(end_s=7.0 * HOUR, wanted_s=30 * HOUR)) == []


def test_what_it_releases_ends_with_the_work_the_owner_or_the_world() -> None:
    assert acts(rest(wanted_s=40 * HOUR)) == [(7.0, 40.0)]
    assert acts(rest(leaves_s=30 * HOUR)) == [(7.0, 30.0)]
    (made,) = list_releases([rest()], [policy()], TURNS, END, idle=IDLE)
    assert made.gpu_hours == pytest.approx(2.0 * 65)


def test_it_does_not_release_twice_what_it_has_released() -> None:
    # In the world that nobody enforced its node was lost at 20:00 and it rested again at 21:00.
    pieces = [
        rest(end_s=20 * HOUR, wanted_s=50 * HOUR),
        rest(begin_s=21 * HOUR, wanted_s=50 * HOUR),
    ]
    made = list_releases(pieces, [policy()], TURNS, END, idle=IDLE)
    assert [(r.at_s / HOUR, r.until_s / HOUR) for r in made] == [(7.0, 50.0)]
    later = list_releases([*pieces, rest(begin_s=51 * HOUR)], [policy()], TURNS, END, idle=IDLE)
    assert [r.at_s / HOUR for r in later] == [7.0, 56.0]


def test_it_leaves_out_what_would_do_harm() -> None:
    bare = tuple(r for r in policy().stages if r.step != "snapshot")
    quiet = tuple(r for r in policy().stages if r.step not in {"notify", "grace"})
    assert acts(rest(files=True))
    assert acts(rest(files=True), policy(stages=bare)) == []
    assert acts(rest(memory=True))
    assert acts(rest(memory=True), policy(stages=quiet)) == []


@pytest.mark.parametrize(
    ("rule", "released"),
    [
        (policy(match=Match(analyzer=("idle",), kind=("idle_inference",))), False),
        (policy(match=Match(analyzer=("quota",))), False),
        (policy(match=Match(namespaces=("lab",))), True),
        (policy(match=Match(not_namespaces=("la*",))), False),
        (policy(match=Match(over_quota=True)), False),
        (policy(allow=Allow(kinds=("Job",))), False),
        (policy(allow=Allow(kinds=("Notebook",))), True),
        (policy(mode="notify"), False),
        (policy(on_pressure=True), False),
        (policy(stages=(Stage("observe"), Stage("notify"))), False),
    ],
)
def test_it_acts_on_the_kinds_that_a_policy_names(rule: Policy, released: bool) -> None:
    assert bool(acts(rest(), rule)) is released


def test_services_wait_for_their_own_duration() -> None:
    server = rest(key=("Deployment", "lab", "s"), family="serving", begin_s=0.0)
    rule = policy(match=Match(kind=("idle_inference",)))
    assert acts(server, rule) == [(28.0, 72.0)]


def test_a_policys_own_shortest_stretch_counts() -> None:
    long = Match(analyzer=("idle",), min_duration=timedelta(hours=3))
    assert acts(rest(), policy(match=long)) == [(9.0, 72.0)]
    server = rest(key=("Deployment", "lab", "s"), family="serving", begin_s=0.0)
    assert acts(server, policy(match=long)) == [(7.0, 72.0)]


def test_who_acts_at_night_alone_waits_for_the_night() -> None:
    night = policy(act_window=RecurringWindow("0 20 * * *", timedelta(hours=9)))
    assert acts(rest(), night) == [(20.0, 72.0)]
    assert acts(rest(begin_s=23.0 * HOUR), night) == [(28.0, 72.0)]
    assert acts(rest(begin_s=24.0 * HOUR), night) == [(44.0, 72.0)]


def test_of_two_policies_the_one_that_may_act_first_does() -> None:
    steps = tuple(
        msgspec.structs.replace(r, wait=timedelta(hours=1)) if r.step == "grace" else r
        for r in policy().stages
    )
    made = list_releases(
        [rest()], [policy(), policy(name="b", stages=steps)], TURNS, END, idle=IDLE
    )
    assert [(r.policy, r.at_s / HOUR) for r in made] == [("b", 4.0)]


SPANS = st.lists(
    st.tuples(st.integers(0, 20), st.integers(0, 20)).map(lambda s: (min(s), max(s))), max_size=6
)


@given(SPANS, st.data())
def test_a_workload_rests_where_all_that_it_holds_rests(
    held: list[tuple[float, float]], data: st.DataObject
) -> None:
    resting = []
    for begin, end in held:
        low = data.draw(st.integers(int(begin), int(end)))
        resting.append((low, data.draw(st.integers(low, int(end)))))
    found = find_common_spans(held, resting)
    for tick in range(21):
        there = sum(b <= tick < e for b, e in held)
        rests = sum(b <= tick < e for b, e in resting)
        assert any(b <= tick < e for b, e in found) == (there > 0 and there == rests)


@pytest.mark.slow
def test_rests_are_those_of_the_blocks_less_the_work_on_hosts() -> None:
    """Two ways to the same truth: phases of scripts here, states of devices by tick there."""
    world = World(Spec(nodes=build_fleet(48), start_s=START), 3)
    observer, scripts, blocks = Observer(world), {}, []
    for hour in range(6, 31, 6):
        blocks.append(world.advance(START + hour * HOUR))
        observer.see()
        scripts.update(world.cast.scripts)
    truth = msgspec.structs.replace(
        gather(blocks, ()), allocations=tuple(world.cluster.allocations)
    )
    known = list_courses(truth, scripts)
    marks = {owner: np.zeros(len(truth.ticks), bool) for owner in known}
    for one in observer.idle_times():
        kind, namespace, name = one.key
        begin, end = np.searchsorted(truth.ticks, [one.begin_s, one.end_s])
        marks[namespace, kind, name][begin:end] = True
    least = 0.0
    for owner, course in known.items():
        shared = owner[2].startswith("class-")  # a device that another one uses is not idle
        idle = marks[owner] & ~course.idle
        assert shared or idle.sum() <= 2 * len(np.flatnonzero(np.diff(marks[owner]))), owner
        least += marks[owner].sum() * TICK_S
    assert least > 100 * HOUR


@pytest.mark.parametrize("shared", [True, False])
def test_a_release_of_time_sliced_devices_says_so(*, shared: bool) -> None:
    (found,) = list_releases([rest(shared=shared)], [policy()], TURNS, END, idle=IDLE)
    assert found.shared is shared
