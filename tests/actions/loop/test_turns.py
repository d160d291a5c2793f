"""A turn on a living cluster: notice, grace, act, verify, undo."""

from tests.actions.loop.site import Site, bare


def test_an_idle_deployment_is_told_waited_for_scaled_down_and_verified(site: Site) -> None:
    before = bare(site.deployment())
    actor = site.actor()
    site.told_and_waited(actor)
    assert site.replicas() == 2
    report = actor.turn(dry_run=False)
    assert [t.result for t in report.taken] == ["acted"], report
    assert site.replicas() == 0
    annotations = site.get("Deployment", "web")["metadata"]["annotations"]
    assert annotations["fallow.dev/action"] == report.taken[0].action
    site.pass_time(minutes=3)
    assert not site.pods()
    closed = actor.turn(dry_run=False).closed
    assert [(o.result, o.freed_gpus) for o in closed] == [("done", 2.0)]
    outcome = actor.undo(report.taken[0].action or "", "ann")
    assert outcome.result == "undone"
    assert bare(site.get("Deployment", "web")) == before
    assert actor.record.journal.verify() is None
