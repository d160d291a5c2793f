"""A clock that is set while a process runs: durations stay durations."""

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from fallow.system.clock_steps import TOLERANCE, ClockSteps, read_ticks

START = datetime(2026, 11, 20, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


class Machine:
    """A wall clock that can be set, and one that cannot."""

    def __init__(self) -> None:
        self.ticks, self.offset = 0.0, timedelta(0)
        self.steps = ClockSteps(lambda: self.ticks)
        self.now = self.steps.watch(lambda: START + timedelta(seconds=self.ticks) + self.offset)
        self.now()

    def run(self, length: timedelta, step: timedelta = timedelta(0)) -> datetime:
        self.ticks += length.total_seconds()
        self.offset += step
        return self.now()


def test_a_clock_set_forward_makes_nothing_older() -> None:
    machine = Machine()
    written = machine.run(HOUR)
    now = machine.run(HOUR / 6, step=HOUR)
    assert now - written == HOUR + HOUR / 6
    assert machine.steps.elapsed(written, now) == HOUR / 6
    assert now - machine.steps.shift(written) == HOUR / 6
    after = machine.run(HOUR)
    assert machine.steps.shift(after) == after


def test_a_clock_set_back_makes_nothing_older_and_elapsed_time_goes_on() -> None:
    machine = Machine()
    written = machine.run(HOUR)
    machine.run(2 * HOUR)
    now = machine.run(HOUR / 6, step=-HOUR)
    assert machine.steps.elapsed(written, now) == 2 * HOUR + HOUR / 6
    assert machine.steps.shift(written) == written, "a grace only waits longer"


def test_a_step_that_is_taken_back_leaves_the_past_where_it_was() -> None:
    machine = Machine()
    written = machine.run(HOUR)
    machine.run(HOUR / 60, step=HOUR)
    machine.run(HOUR / 60, step=-HOUR)
    assert len(machine.steps.steps) == 2
    assert machine.steps.shift(written) == written


def test_without_ticks_and_within_the_tolerance_there_is_no_step() -> None:
    now = [START]
    steps = ClockSteps()
    clock = steps.watch(lambda: now[0])
    clock()
    now[0] += 5 * HOUR
    clock()
    machine = Machine()
    machine.run(HOUR, step=TOLERANCE / 2)
    assert steps.steps == machine.steps.steps == []
    assert read_ticks() <= read_ticks()


spans = st.integers(0, 86_400).map(lambda s: timedelta(seconds=s))
sizes = st.integers(-7_200, 7_200).map(lambda s: timedelta(seconds=s))


@given(st.lists(st.tuples(spans, sizes), min_size=1, max_size=8), st.integers(0, 7))
def test_no_row_is_ever_older_than_it_really_is(
    moves: list[tuple[timedelta, timedelta]], at: int
) -> None:
    machine = Machine()
    written, ticks = machine.now(), 0.0
    for number, (length, step) in enumerate(moves):
        machine.run(length, step)
        if number == at:
            written, ticks = machine.now(), machine.ticks
    now, really = machine.now(), timedelta(seconds=machine.ticks - ticks)
    slack = TOLERANCE * 2 * len(moves)
    assert machine.steps.elapsed(written, now) <= really + slack
    assert now - machine.steps.shift(written) <= really + slack
