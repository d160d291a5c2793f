"""Never two actors at once, whatever their clocks say; a dead one's lease is taken in time."""

import copy
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actions.cluster.write_results import WriteResult
from actions.loop.lease import RETRY_S, Lease
from actions.loop.protocols import ClusterClient
from fallow.action_models import Change
from fallow.errors import TemporaryError
from fallow.settings.actions import LeaseSettings

START = datetime(2026, 11, 20, 12, tzinfo=UTC)
SETTINGS = LeaseSettings(duration=timedelta(seconds=60))
DURATION = 60.0
Object = dict[str, Any]


class World:
    """The time that passes for all, and an API server with one object."""

    def __init__(self) -> None:
        self.now = 0.0
        self.lease: Object | None = None
        self.version = 0
        self.writes = 0

    def patch(self, change: Change) -> WriteResult:
        self.writes += 1
        if change.method == "POST":
            if self.lease is not None:
                return WriteResult("conflict", 409)
            self.lease = {"metadata": {"uid": "u"}, "spec": {}}
        assert self.lease is not None
        meta = self.lease["metadata"]
        if change.method == "PATCH":
            assert change.guarded
            assert change.target.resource_version
            if change.target.resource_version != meta.get("resourceVersion"):
                return WriteResult("conflict", 409)
        spec = {**self.lease["spec"], **change.body["spec"]}
        if spec != self.lease["spec"]:  # a patch that changes nothing keeps the version
            self.version += 1
        self.lease = {
            "metadata": {"uid": "u", "resourceVersion": str(self.version)},
            "spec": {k: v for k, v in spec.items() if v is not None},
        }
        return WriteResult("done", 200, object=self.lease)


class Host:
    """An actor on a host of its own: its wall clock is wrong and is set, its ticks go on."""

    def __init__(self, world: World, name: str, skew: float = 0.0) -> None:
        self.world, self.name, self.skew = world, name, skew
        self.alive, self.busy = True, False
        self.meanwhile: Callable[[], None] = lambda: None
        """What happens while a request of ours is on its way."""
        self.lost = 0
        """How many of the next answers to writes do not arrive."""
        self.lease = Lease(
            cast(ClusterClient, self), SETTINGS, name, self.clock, ticks=lambda: world.now
        )

    def clock(self) -> datetime:
        return START + timedelta(seconds=self.world.now + self.skew)

    def get(self, path: str) -> Object | None:
        assert path.endswith("/leases/fallow-actor")
        self.meanwhile()
        found = copy.deepcopy(self.world.lease)
        self.meanwhile()
        return found

    def send(self, change: Change, *, dry_run: bool) -> WriteResult:
        assert not dry_run
        self.meanwhile()
        answer = self.world.patch(change)
        self.meanwhile()
        if self.lost:
            self.lost -= 1
            raise TemporaryError("no answer")
        return answer

    def poll(self) -> bool:
        """Ask for the lease, as before every write; tell whether we may act now."""
        if self.busy or not self.alive:
            return False
        self.busy = True
        try:
            return self.lease.hold() is None
        except TemporaryError:
            return False
        finally:
            self.busy = False

    @property
    def acts(self) -> bool:
        return self.alive and self.lease.is_held


def never_two(*hosts: Host) -> None:
    assert sum(host.acts for host in hosts) <= 1, [h.name for h in hosts if h.acts]


def test_a_clock_that_is_set_back_an_hour_gives_no_second_holder() -> None:
    world = World()
    one, two = Host(world, "one"), Host(world, "two")
    minutes_with_two = 0
    for minute in range(80):
        if minute == 10:
            one.skew -= 3600
        both: list[bool] = []
        for _ in range(3):
            both = [host.poll() for host in (one, two)]
            world.now += 20
        minutes_with_two += all(both)
    assert minutes_with_two == 0
    assert one.acts


@pytest.mark.parametrize("skew", [-3600, -600, -91, 91, 600, 3600])
def test_clocks_that_differ_give_no_second_holder(skew: float) -> None:
    world = World()
    one, two = Host(world, "one"), Host(world, "two", skew)
    for _ in range(200):
        assert one.poll()
        assert not two.poll()
        world.now += 15
        never_two(one, two)


@pytest.mark.parametrize("skew", [-600, 0, 600])
@pytest.mark.parametrize("retry", [2.0, 15.0, 59.0])
def test_a_dead_holders_lease_is_taken_within_its_duration_and_a_retry(
    skew: float, retry: float
) -> None:
    world = World()
    one, two = Host(world, "one"), Host(world, "two", skew)
    assert one.poll()
    died = world.now
    one.alive = False
    assert not two.poll()
    while not two.poll():
        world.now += retry
        assert world.now - died <= DURATION + retry
    assert world.now - died >= DURATION


def test_of_two_that_wait_one_takes_it() -> None:
    world = World()
    dead, one, two = (Host(world, name) for name in ("dead", "one", "two"))
    assert dead.poll()
    dead.alive = False
    assert not one.poll()
    assert not two.poll()
    world.now += DURATION

    def first() -> None:
        one.poll()

    two.meanwhile = first
    two.poll()
    assert [one.acts, two.acts] == [True, False]


def test_a_renewal_whose_answer_is_lost_is_not_believed() -> None:
    world = World()
    one, two = Host(world, "one"), Host(world, "two")
    assert one.poll()
    world.now += 30
    one.lost = 1
    assert not one.poll()
    assert not one.acts
    assert one.poll(), "it reads that the lease is its own, and renews it"
    never_two(one, two)


def test_a_clock_that_stands_still_shows_life_all_the_same() -> None:
    world = World()
    one, two = Host(world, "one"), Host(world, "two")
    for _ in range(20):
        assert one.poll()
        assert not two.poll()
        world.now += 25
        one.skew -= 25


def test_a_given_up_lease_is_free_at_once() -> None:
    world = World()
    one, two = Host(world, "one"), Host(world, "two", 600)
    assert one.poll()
    assert not two.poll()
    one.lease.give_up()
    assert not one.acts
    assert two.poll()


def test_the_duration_that_the_lease_names_counts_for_who_waits() -> None:
    world = World()
    one, two = Host(world, "one"), Host(world, "two")
    two.lease = Lease(
        cast(ClusterClient, two),
        LeaseSettings(duration=timedelta(seconds=10)),
        "two",
        two.clock,
        ticks=lambda: world.now,
    )
    assert one.poll()
    assert not two.poll()
    world.now += DURATION - 1
    assert not two.poll()
    world.now += 1
    assert two.poll()


def test_who_waits_for_a_lease_hears_at_once_that_its_holder_lives() -> None:
    world = World()
    one, two = Host(world, "one"), Host(world, "two")
    assert one.poll()
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        world.now += 10 * seconds
        one.poll()

    assert two.lease.wait(sleep) is not None
    assert len(slept) == 1
    one.alive = False

    def alone(seconds: float) -> None:
        world.now += seconds

    assert two.lease.wait(alone) is None
    assert two.acts


steps = st.lists(
    st.tuples(
        st.floats(0, 90),
        st.sampled_from(["poll", "poll", "poll", "set", "lose", "crash", "start"]),
        st.integers(0, 1),
        st.floats(-4000, 4000),
    ),
    max_size=60,
)


class Story:
    """Two hosts whose requests take time, during which the other one goes on."""

    def __init__(self, skews: tuple[float, float], latencies: list[tuple[float, bool]]) -> None:
        self.world = World()
        self.hosts = [Host(self.world, name, skew) for name, skew in zip("ab", skews, strict=True)]
        self._latencies = iter(latencies)
        self._wire()

    def _wire(self) -> None:
        for host, other in (self.hosts, self.hosts[::-1]):
            host.meanwhile = self._passing(other)

    def _passing(self, other: Host) -> Callable[[], None]:
        def happen() -> None:
            delay, polls = next(self._latencies, (0.0, False))
            self.world.now += delay
            never_two(*self.hosts)
            if polls:
                other.poll()
                never_two(*self.hosts)

        return happen

    def tell(self, pause: float, what: str, which: int, amount: float) -> None:
        self.world.now += pause
        never_two(*self.hosts)
        host = self.hosts[which]
        if what == "poll":
            host.poll()
        elif what == "set":
            host.skew += amount
        elif what == "lose":
            host.lost = 1
        elif what == "crash":
            host.alive = False
        elif not host.alive:  # a process of another name starts on that host
            self.hosts[which] = Host(self.world, f"{host.name}+", host.skew)
            self._wire()
        never_two(*self.hosts)

    def survivor(self) -> Host | None:
        """Let all but one host die, and the network be well; return that one."""
        left = next((h for h in self.hosts if h.alive), None)
        for host in self.hosts:
            host.alive, host.lost, host.meanwhile = host is left, 0, lambda: None
        return left


@given(
    skews=st.tuples(st.floats(-600, 600), st.floats(-600, 600)),
    script=steps,
    latencies=st.lists(st.tuples(st.floats(0, 40), st.booleans()), max_size=60),
)
def test_never_two_holders_and_a_dead_ones_lease_is_taken(
    skews: tuple[float, float],
    script: list[tuple[float, str, int, float]],
    latencies: list[tuple[float, bool]],
) -> None:
    story = Story(skews, latencies)
    for step in script:
        story.tell(*step)
    host = story.survivor()
    if host is None:
        return
    host.poll()
    began = story.world.now
    while not host.poll():
        story.world.now += RETRY_S
        assert story.world.now - began <= DURATION + RETRY_S
