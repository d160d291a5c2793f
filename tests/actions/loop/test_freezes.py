"""A freeze stops every write until a thaw; undo works meanwhile."""

from tests.actions.loop.site import Site, bare, freeze_by_file, report_incident


def test_a_freeze_in_the_middle_stops_the_next_write_and_a_thaw_takes_the_half_back(
    site: Site,
) -> None:
    before = site.subject("CronJob")

    def pulse(step: str) -> None:
        if step == "journalled sent 0":
            freeze_by_file(site)

    actor = site.actor(pulse=pulse)
    site.told_and_waited(actor)
    actor.turn(dry_run=False)
    (result,) = actor.record.actions.values()
    assert result.is_open
    assert len(site.writes("/cronjobs", "night")) == 1
    actor = site.actor()
    assert actor.turn(dry_run=False).halted
    assert len(site.writes("batch")) == 1  # frozen: not even taken back
    site.evidence.idle = []
    assert actor.freeze.thaw("ann") == []
    actor.turn(dry_run=False)
    assert {key: bare(site.get(*key)) for key in before} == before
    (result,) = actor.record.actions.values()
    assert result.outcome is not None
    assert result.outcome.result == "failed"


def test_freeze_by_command_switches_everything_and_thaw_switches_it_back(site: Site) -> None:
    site.deployment()
    actor, other = site.actor(), site.actor(actor="ann")
    site.told_and_waited(actor)
    assert other.freeze.freeze("demo day", "ann") == []
    assert (site.folder / "FREEZE").exists()
    assert site.get("ConfigMap", "fallow-freeze", "fallow")["data"]["frozen"] == "true"
    report = actor.turn(dry_run=False)
    assert "frozen by ann" in report.halted[0].text
    assert other.freeze.thaw("ann") == []
    assert [t.result for t in actor.turn(dry_run=False).steps] == ["acted"]


def test_a_thaw_that_cannot_reach_a_switch_leaves_everything_frozen(site: Site) -> None:
    actor = site.actor()
    actor.freeze.freeze("demo day", "ann")
    site.server.access.deny("patch", "configmaps")
    assert actor.freeze.thaw("ann")
    assert actor.freeze.why() is not None


def test_the_breaker_freezes_until_somebody_thaws(site: Site) -> None:
    site.deployment()
    actor = site.actor()
    site.told_and_waited(actor)
    report_incident(site)
    actor.turn(dry_run=False)
    site.evidence.why = None
    assert "breaker" in actor.turn(dry_run=False).halted[0].text
    assert any("acts no more" in text for text in site.told.operators())
    actor.freeze.thaw("ann")
    assert [t.result for t in actor.turn(dry_run=False).steps] == ["acted"]


def test_undo_works_while_everything_is_frozen(site: Site) -> None:
    site.deployment()
    actor = site.actor()
    state = site.done(actor)
    freeze_by_file(site)
    assert actor.undo(state.action.id[:6], "ann").result == "undone"
    assert site.replicas() == 2
