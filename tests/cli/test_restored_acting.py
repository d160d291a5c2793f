"""A journal that ends before what the cluster shows acts only after it was reconciled."""

import json
import shutil
from pathlib import Path

import pytest

from actions.loop.lease import ANCHOR_KEY
from tests.actions.loop.site import SPACE, Site
from tests.cli.conftest import Fallow
from tests.cli.test_acting import cli as cli  # noqa: PLC0414  (a fixture)
from tests.cli.test_acting import site as site  # noqa: PLC0414  (a fixture)

LEASE = ("Lease", "fallow-actor", "fallow")


def act_on(site: Site, *names: str) -> list[str]:
    """Notify about idle Deployments, wait, act on them; return the ids of their actions."""
    actor = site.actor()
    for name in names:
        site.deployment(name)
    site.told_and_waited(actor)
    actor.turn(dry_run=False)
    assert [site.replicas(name) for name in names] == [0] * len(names)
    site.pass_time(minutes=3)
    actor.turn(dry_run=False)
    return [
        action.action.id
        for name in names
        for action in actor.record.actions.values()
        if action.workload[3] == name
    ]


def only_idle(site: Site, *names: str) -> None:
    site.evidence.idle = [("Deployment", name) for name in names]


def move_to(site: Site, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site.folder = home
    monkeypatch.setenv("FALLOW_HOME", str(home))


def halt(site: Site) -> str:
    """Run one evaluation; return why nothing acts, empty if something may."""
    return "; ".join(r.text for r in site.actor().turn(dry_run=False).halted)


def test_a_restored_home_acts_after_it_was_reconciled_with_the_marks_and_thawed(
    site: Site, cli: Fallow, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    [known] = act_on(site, "web")
    only_idle(site)
    for name in ("late", "third"):
        site.deployment(name)
    site.told_and_waited(site.actor())  # both owners are notified, and their grace ends
    ran = cli("backup", tmp_path / "backup", "--without-warehouse")
    assert ran.code == 0, ran.err
    only_idle(site, "late")
    for _ in range(2):  # the second renews the Lease
        site.actor().turn(dry_run=False)
        site.pass_time(minutes=3)
    assert (site.replicas("late"), site.replicas("third")) == (0, 2)

    home = tmp_path / "restored"
    ran = cli("restore", tmp_path / "backup", "--home", home)
    assert ran.code == 0, ran.err
    move_to(site, home, monkeypatch)
    only_idle(site, "third")
    assert "restored from" in halt(site)
    assert site.replicas("third") == 2

    ran = cli("thaw")
    assert (ran.code, "fallow reconcile" in ran.err) == (3, True)
    assert cli("undo", known).code == 0
    assert site.replicas("web") == 2
    assert cli("keep", f"Deployment/{SPACE}/web").code == 0
    assert "restored from" in halt(site)

    ran = cli("reconcile", "-o", "json")
    assert ran.code == 0, ran.err
    [missing] = json.loads(ran.out)["missing"]
    assert (missing["kind"], missing["namespace"], missing["name"]) == ("Deployment", SPACE, "late")
    assert missing["action"] in site.get("Deployment", "late")["metadata"]["annotations"].values()
    assert "it is not the journal that the Lease names" in ran.err
    assert "restored from" in halt(site)
    ran = cli("thaw")
    assert (ran.code, ran.err) == (0, "thawed\n")

    # The notice of before the backup does not count toward the grace.
    [step] = site.actor().turn(dry_run=False).steps
    assert step.result == "notified"
    assert site.replicas("third") == 2
    site.pass_time(hours=1, minutes=1)
    site.actor().turn(dry_run=False)
    assert site.replicas("third") == 0


def test_a_journal_cut_at_its_end_is_found_by_the_lease(
    site: Site, cli: Fallow, tmp_path: Path
) -> None:
    act_on(site, "web")
    shutil.copytree(site.folder, tmp_path / "cut")
    act_on(site, "late")
    site.folder = tmp_path / "cut"
    assert "before row" in halt(site)
    assert any("fallow reconcile" in text for text in site.told.operators())
    kinds = site.kinds()
    assert kinds[-2:] == ["outdated", "frozen"]
    halt(site)
    assert site.kinds() == kinds
    del cli


def test_a_lost_journal_is_found_by_the_lease(site: Site, tmp_path: Path) -> None:
    act_on(site, "web")
    site.folder = tmp_path / "new"
    site.folder.mkdir()
    assert "the journal ends at row 0" in halt(site)
    anchor = site.get(*LEASE)["metadata"]["annotations"][ANCHOR_KEY]
    halt(site)
    assert site.get(*LEASE)["metadata"]["annotations"][ANCHOR_KEY] == anchor


def test_a_lost_journal_is_found_by_the_marks_where_no_lease_names_it(
    site: Site, tmp_path: Path
) -> None:
    [action] = act_on(site, "web")
    notes = {"metadata": {"annotations": {ANCHOR_KEY: None}}}
    site.store.patch(*LEASE, notes, manager="kubectl-edit")
    site.folder = tmp_path / "new"
    site.folder.mkdir()
    assert f"action {action}, which it does not have" in halt(site)


def test_an_actor_of_before_anchors_goes_on(site: Site) -> None:
    act_on(site, "web")
    notes = {"metadata": {"annotations": {ANCHOR_KEY: None}}}
    site.store.patch(*LEASE, notes, manager="kubectl-edit")
    assert halt(site) == ""


def test_an_object_with_an_unknown_mark_is_not_acted_upon(site: Site) -> None:
    site.deployment("web")
    notes = {"metadata": {"annotations": {"fallow.dev/action": "a-unknown"}}}
    actor = site.actor()
    site.told_and_waited(actor)
    site.patch("Deployment", "web", notes)
    site.pass_time(minutes=3)
    [step] = actor.turn(dry_run=False).steps
    assert step.result == "refused"
    assert "a-unknown changed it" in step.reasons[0].text


def test_marks_that_may_not_be_listed_leave_the_journal_unreconciled(
    site: Site, cli: Fallow, tmp_path: Path
) -> None:
    act_on(site, "web")
    site.server.access.deny("list", "deployments")
    ran = cli("reconcile")
    assert ran.code == 3
    assert "Deployment may not be listed" in ran.err
    assert "reconciled" not in site.kinds()
    del tmp_path
