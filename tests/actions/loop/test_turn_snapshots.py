"""Snapshots before a stop, and what is restored from them after its undo."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import msgspec

from actions.journal import event_types
from actions.loop.actor import Actor
from actions.policy.model import Stage
from actions.snapshots import RestoredPart, Snapshot, SnapshotPart
from fallow.action_models import Intent, Target
from fallow.errors import TemporaryError
from tests.actions.loop.site import POLICY, Site


class Keeper:
    """Takes snapshots of a site's home folders, verified or not, and notes what it restores."""

    def __init__(self, site: Site, *, verified: bool) -> None:
        self.site, self.verified = site, verified
        self.restored: list[str] = []
        self.away = False
        self.failure = ""

    def take(self, intent: Intent, what: Sequence[str]) -> Snapshot:
        assert intent.frees
        assert what == ("home",)
        assert self.site.replicas() == 2
        missing = () if self.verified else ("home: too large",)
        part = SnapshotPart("home", "a/b.tar.gz", self.verified)
        return Snapshot("snap-1", intent.target, self.site.now, (part,), missing)

    def restore(self, snapshot: Snapshot, target: Target) -> list[RestoredPart]:
        if self.away:
            raise TemporaryError("the store does not answer")
        if self.failure:
            return [RestoredPart(snapshot.parts[0], "failed", self.failure)]
        self.restored.append(f"{snapshot.id} to {target.name}")
        return [RestoredPart(snapshot.parts[0], "restored")]


def require_snapshot(site: Site) -> None:
    """Let the site's policy stop only what has a verified snapshot."""
    stages = (
        *POLICY.stages[:2],
        Stage("snapshot", parts=("home",), required=True),
        POLICY.stages[2],
    )
    site.policy = msgspec.structs.replace(POLICY, stages=stages)


def test_no_stop_without_a_verified_snapshot_where_the_policy_asks_for_one(site: Site) -> None:
    require_snapshot(site)
    site.deployment()

    keeper = Keeper(site, verified=False)
    actor = site.actor(snapshotter=keeper)
    site.told_and_waited(actor)
    (taken,) = actor.turn(dry_run=False).steps
    assert (taken.result, taken.reasons[0].text) == (
        "refused",
        "no verified snapshot: home: too large",
    )
    keeper.verified = True
    (taken,) = actor.turn(dry_run=False).steps
    assert taken.result == "acted"
    (result,) = actor.record.actions.values()
    assert result.action.snapshot == "snap-1"
    site.pass_time(minutes=3)
    actor.turn(dry_run=False)
    actor.undo(result.action.id, "ann")
    actor.turn(dry_run=False)
    assert not keeper.restored  # its pods do not run yet
    site.pass_time(minutes=5)
    for _ in range(2):
        actor.turn(dry_run=False)
    assert keeper.restored == ["snap-1 to web"]


def undo_stop(site: Site, keeper: Keeper) -> Actor:
    """Stop the site's Deployment with a snapshot, undo it, and return the actor."""
    require_snapshot(site)
    site.deployment()
    actor = site.actor(snapshotter=keeper)
    site.told_and_waited(actor)
    actor.turn(dry_run=False)
    (done,) = actor.record.actions.values()
    site.pass_time(minutes=3)
    actor.turn(dry_run=False)
    actor.undo(done.action.id, "ann")
    return actor


def restore_failures(site: Site) -> list[Any]:
    rows = site.journal().entries(event_types.SNAPSHOT_RESTORED)
    return [row.document["failed"] for row in rows]


def test_a_snapshot_whose_pods_do_not_run_within_an_hour_stays_where_it_is(site: Site) -> None:
    keeper = Keeper(site, verified=True)
    actor = undo_stop(site, keeper)
    # Only the clock goes on: the cluster starts no pod meanwhile.
    site.now += timedelta(minutes=60)
    actor.turn(dry_run=False)
    assert restore_failures(site) == []
    site.now += timedelta(seconds=1)
    actor.turn(dry_run=False)
    assert restore_failures(site) == [["none of its pods runs: the snapshot stays where it is"]]
    site.pass_time(minutes=5)
    actor.turn(dry_run=False)
    assert (len(restore_failures(site)), keeper.restored) == (1, [])


def test_a_store_that_does_not_answer_is_asked_again_for_an_hour(site: Site) -> None:
    keeper = Keeper(site, verified=True)
    actor = undo_stop(site, keeper)
    undone = site.now
    keeper.away = True
    site.pass_time(minutes=5)
    actor.turn(dry_run=False)
    assert restore_failures(site) == []
    site.now = undone + timedelta(minutes=60)
    actor.turn(dry_run=False)
    assert restore_failures(site) == []
    site.now += timedelta(seconds=1)
    actor.turn(dry_run=False)
    assert restore_failures(site) == [["the store does not answer"]]


def test_a_part_that_cannot_be_restored_is_named_with_its_reason(site: Site) -> None:
    keeper = Keeper(site, verified=True)
    actor = undo_stop(site, keeper)
    keeper.failure = "the checksum differs"
    site.pass_time(minutes=5)
    notes = " ".join(actor.turn(dry_run=False).notes)
    assert "a/b.tar.gz: the checksum differs" in notes
    assert restore_failures(site) == [["a/b.tar.gz: the checksum differs"]]
