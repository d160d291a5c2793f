"""Of several actors one acts, and only so many actions run at a time."""

from datetime import datetime, timedelta

import pytest

from actions.loop.lease import Lease
from tests.actions.loop.site import Site


def test_of_two_actors_one_acts(site: Site) -> None:
    site.deployment()
    one, two = site.actor(identity="one"), site.actor(identity="two")
    for _ in range(4):
        reports = [one.turn(dry_run=False), two.turn(dry_run=False)]
        assert [bool(r.halted) for r in reports] == [False, True]
        site.pass_time(minutes=40)
        # The one that is silent for longer than its lease lasts loses it; here it never is.
        one.turn(dry_run=False)
    assert len(site.writes("/scale")) == 1


@pytest.mark.parametrize("minutes", [-60, -10, 10, 60])
def test_of_two_actors_whose_clocks_differ_one_acts(site: Site, minutes: int) -> None:
    def clock() -> datetime:
        return site.now + timedelta(minutes=minutes)

    def ticks() -> float:
        return site.now.timestamp()

    site.deployment()
    one = site.actor(identity="one")
    lease = Lease(site.door(), site.settings.lease, "two", clock, ticks)
    two = site.actor(identity="two", clock=clock, lease=lease)
    for _ in range(25):
        reports = [one.turn(dry_run=False), two.turn(dry_run=False)]
        assert [bool(r.halted) for r in reports] == [False, True]
        site.pass_time(minutes=3)
    assert len(site.writes("/scale")) == 1


def test_a_lease_is_taken_over_only_after_its_holder_was_silent_long_enough(site: Site) -> None:
    one, two = site.actor(identity="one"), site.actor(identity="two")
    assert one.lease.hold() is None
    site.pass_time(minutes=30)
    assert two.lease.hold() is not None, "it saw the lease for the first time"
    site.pass_time(seconds=119)
    assert two.lease.hold() is not None
    site.pass_time(seconds=2)
    assert two.lease.hold() is None
    assert one.lease.hold() is not None
    two.lease.give_up()
    assert one.lease.hold() is None


def test_so_many_actions_at_a_time(site: Site) -> None:
    for name in ("a", "b", "c"):
        site.deployment(name, replicas=1)
    actor = site.actor()
    site.told_and_waited(actor)
    report = actor.turn(dry_run=False)
    assert [t.result for t in report.steps] == ["acted", "acted", "held"]
    site.pass_time(minutes=3)
    assert actor.turn(dry_run=False).steps[-1].result == "acted"
