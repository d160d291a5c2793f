"""What people type when something acted, or must not: one clear line, nothing done."""

import json
import sqlite3
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from actions.journal import ActionState, event_types
from fallow.action_models import compute_decision_id
from tests.actions.loop.site import SPACE, Site, bare
from tests.cli.conftest import Fallow


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """Return a cluster that the kubeconfig names; its journal lies in the home."""
    home = tmp_path / "home"
    home.mkdir()
    begin = datetime.now(UTC).replace(microsecond=0) - timedelta(hours=3)
    with Site(home, begin) as made:
        path = tmp_path / "kubeconfig"
        _kubeconfig(path, made.server.url)
        monkeypatch.setenv("KUBECONFIG", str(path))
        import kubernetes.config.kube_config as loader

        # The client reads KUBECONFIG once, when it is imported.
        monkeypatch.setattr(loader, "KUBE_CONFIG_DEFAULT_LOCATION", str(path))
        yield made


@pytest.fixture
def cli(site: Site, fallow: Fallow, monkeypatch: pytest.MonkeyPatch) -> Fallow:
    """Run commands in the site's home, as ann."""
    monkeypatch.setenv("FALLOW_HOME", str(site.folder))
    monkeypatch.setenv("FALLOW_CLUSTER", "c")
    monkeypatch.setenv("FALLOW_ACTIONS__ACTOR", "ann")
    return fallow


def _kubeconfig(path: Path, url: str, context: str = "test") -> None:
    named = {"cluster": "test", "user": "test"}
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "test", "cluster": {"server": url}}],
        "users": [{"name": "test", "user": {"token": "t"}}],
        "contexts": [{"name": context, "context": named}],
        "current-context": context,
    }
    path.write_text(json.dumps(config))


def done(site: Site) -> tuple[ActionState, Any]:
    before = bare(site.deployment())
    return site.done(site.actor()), before


def stop_job(site: Site) -> str:
    """Make an idle Job, let it be suspended and return the action's id."""
    site.job()
    return site.done(site.actor()).action.id


def test_an_action_is_listed_undone_once_and_no_more(site: Site, cli: Fallow) -> None:
    result, before = done(site)
    ran = cli("actions", "-o", "json")
    (row,) = json.loads(ran.out)["actions"]
    assert (row["action"], row["result"], row["freed_gpus"]) == (result.action.id, "done", 2.0)
    assert row["workload"] == f"Deployment/{SPACE}/web"
    ran = cli("undo", result.action.id[:8])
    assert (ran.code, ran.err) == (0, f"action {result.action.id} is undone\n")
    assert bare(site.get("Deployment", "web")) == before
    ran = cli("undo", result.action.id)
    assert ran.code == 3
    assert ran.err.startswith(f"fallow: action {result.action.id} was undone already, at 20")
    assert ran.err.count("\n") == 1


def test_a_stopped_job_is_requested_back_once_it_has_room(site: Site, cli: Fallow) -> None:
    action = stop_job(site)
    before = site.get("Job", "train")
    for _ in range(2):
        ran = cli("resume", action[:8])
        assert ran.code == 0, ran
        assert ran.err.startswith(f"action {action}: ann requested at 20")
        # The site has no folder of policies.
        assert "; it waits for room; which policy resumes it is not known: there is no" in ran.err
    (row,) = site.journal().entries(event_types.RESUME_REQUESTED)
    assert (row.key, row.actor) == (action, "ann")
    assert site.get("Job", "train") == before
    assert cli("undo", action).code == 0
    ran = cli("resume", action)
    assert (ran.code, "was undone already" in ran.err) == (3, True), ran


def test_only_a_stopped_job_is_requested_back(site: Site, cli: Fallow) -> None:
    result, _ = done(site)
    ran = cli("resume", result.action.id)
    assert ran.code == 2, ran
    name = f"{result.action.decision.verb} Deployment/{SPACE}/web"
    assert f"action {result.action.id} ({name}) suspended no job: only Job, JobSet," in ran.err
    assert f"fallow undo {result.action.id}" in ran.err


def test_one_action_is_shown_whole(site: Site, cli: Fallow) -> None:
    result, _ = done(site)
    ran = cli("actions", result.action.id)
    assert ran.code == 0
    assert "intent" in ran.out
    assert "1 changes, 1 to undo them" in ran.out
    whole = json.loads(cli("actions", result.action.id, "-o", "json").out)
    assert whole["action"]["intent"]["changes"][0]["becomes"] == {"/spec/replicas": 0}


@pytest.mark.parametrize(
    ("command", "says"),
    [
        (("undo", "nothing"), "no action 'nothing' in the journal"),
        (("resume", "nothing"), "no action 'nothing' in the journal"),
        (("approve", "nothing"), "no request 'nothing' in the journal"),
        (("actions", "nothing"), "no action 'nothing' in the journal"),
        (("keep", "web"), "'web' is no workload"),
        (("keep", f"Deployment/{SPACE}/gone"), f"there is no Deployment/{SPACE}/gone in c"),
        (("keep", f"Deployment/{SPACE}/web", "soon"), "'soon' is not a duration"),
        (("apply", "--policy", "nowhere.yaml"), "nowhere.yaml"),
    ],
)
def test_what_is_not_there_is_one_line_and_exit_2(
    site: Site, cli: Fallow, command: tuple[str, ...], says: str
) -> None:
    done(site)
    rows = len(site.kinds())
    ran = cli(*command)
    assert ran.code == 2, ran
    assert says in ran.err.splitlines()[0]
    assert len(site.kinds()) == rows


@pytest.mark.parametrize(
    "command", [("undo", "x"), ("resume", "x"), ("approve", "x"), ("actions",)]
)
def test_without_a_journal_there_is_nothing(cli: Fallow, command: tuple[str, ...]) -> None:
    ran = cli(*command)
    assert ran.code == 2
    assert "there is no journal at" in ran.err


def test_an_unreachable_cluster_is_temporary(site: Site, cli: Fallow, tmp_path: Path) -> None:
    result, _ = done(site)
    _kubeconfig(tmp_path / "kubeconfig", "http://127.0.0.1:1")
    rows = site.kinds()
    for words_ in (("undo", result.action.id), ("keep", f"Deployment/{SPACE}/web")):
        ran = cli(*words_)
        assert ran.code == 75, ran
        assert "no answer" in ran.err
    assert site.kinds() == rows


def test_a_kubeconfig_without_rights_is_refused(site: Site, cli: Fallow) -> None:
    result, _ = done(site)
    site.server.access.deny("patch", "*")
    ran = cli("undo", result.action.id)
    assert ran.code == 3, ran
    assert "is not undone" in ran.err
    assert "forbidden" in ran.err
    assert site.replicas() == 0
    ran = cli("keep", f"Deployment/{SPACE}/web")
    assert ran.code == 3
    assert event_types.KEEP not in site.kinds()


def test_a_wrong_context_names_the_legal_ones(
    site: Site, cli: Fallow, monkeypatch: pytest.MonkeyPatch
) -> None:
    result, _ = done(site)
    monkeypatch.setenv("FALLOW_ACTIONS__CONTEXT", "prod")
    ran = cli("undo", result.action.id)
    assert ran.code == 2
    assert "test" in ran.err


@pytest.mark.parametrize("name", [f"Deployment/{SPACE}/web", f"{SPACE}/Deployment/web"])
def test_keep_is_an_annotation_and_a_row(site: Site, cli: Fallow, name: str) -> None:
    site.deployment()
    ran = cli("keep", name, "48h")
    assert ran.code == 0, ran
    answer = site.get("Deployment", "web")["metadata"]["annotations"]["fallow.dev/keep-until"]
    until = datetime.fromisoformat(answer)
    assert timedelta(hours=47, minutes=59) < until - datetime.now(UTC) <= timedelta(hours=48)
    (row,) = site.journal().entries(event_types.KEEP)
    assert (row.key, row.actor) == (f"c/Deployment/{SPACE}/web", "ann")


def test_freeze_and_thaw_with_and_without_a_cluster(
    site: Site, cli: Fallow, tmp_path: Path
) -> None:
    assert cli("freeze", "demo day").code == 0
    assert (site.folder / "FREEZE").exists()
    assert site.get("ConfigMap", "fallow-freeze", "fallow")["data"]["frozen"] == "true"
    ran = cli("thaw")
    assert (ran.code, ran.err) == (0, "thawed\n")
    _kubeconfig(tmp_path / "kubeconfig", "http://127.0.0.1:1")
    ran = cli("freeze")
    assert ran.code == 0
    assert "the ConfigMap is left as it is" in ran.err
    assert (site.folder / "FREEZE").exists()
    assert cli("thaw").code == 0


def test_the_canary_is_run_by_command_and_reports_why_it_failed(
    site: Site, cli: Fallow, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = cli("canary")
    assert (ran.code, "there is no canary" in ran.err) == (2, True), ran
    monkeypatch.setenv("FALLOW_ACTIONS__CANARY__IMAGE", "pause:3.10")
    monkeypatch.setenv("FALLOW_ACTIONS__CANARY__TIMEOUT", "10s")
    monkeypatch.setenv("FALLOW_ACTIONS__STICK", "1ms")
    monkeypatch.setattr("runtime.cli.act.time.sleep", lambda _s: site.pass_time(minutes=1))
    site.make("Namespace", "fallow-canary", namespace="")
    ran = cli("canary")
    assert (ran.code, "would stop and restore" in ran.err) == (0, True), ran
    assert site.store.get("Deployment", "fallow-canary", "fallow-canary") is None
    assert cli("freeze").code == 0
    assert cli("canary", "--yes").code == 3
    assert cli("thaw").code == 0
    node = site.store.list("Node", "")[0]["metadata"]["name"]
    site.store.patch("Node", node, "", {"spec": {"taints": None}}, manager="kubectl-taint")
    ran = cli("canary", "--yes")
    assert (ran.code, "was stopped, restored and is Ready" in ran.err) == (0, True), ran
    site.server.access.deny("patch", "deployments/scale")
    ran = cli("canary", "--yes")
    assert (ran.code, "forbidden" in ran.err) == (1, True), ran
    assert site.get("Deployment", "fallow-canary", "fallow-canary")["spec"]["replicas"] == 1


def test_a_canary_beside_the_service_names_who_holds_the_lease(
    site: Site, cli: Fallow, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FALLOW_ACTIONS__CANARY__IMAGE", "pause:3.10")
    spec = {"holderIdentity": "fallow-0 1", "leaseDurationSeconds": 15}
    site.make("Lease", "fallow-actor", spec, namespace="fallow")

    def renew(_seconds: float) -> None:
        body = {"spec": {"renewTime": "2026-11-20T12:00:01.000000Z"}}
        site.store.patch("Lease", "fallow-actor", "fallow", body, manager="fallow")

    monkeypatch.setattr("runtime.cli.act.time.sleep", renew)
    ran = cli("canary", "--yes")
    assert ran.code == 75, ran
    assert "another actor holds the lease: fallow-0 1 acts" in ran.err
    assert "runs the canary itself, every 6h; stop it to run this one" in ran.err


def test_whoever_asks_does_not_approve(site: Site, cli: Fallow) -> None:
    document = {
        "policy": "idle",
        "finding": "f-web",
        "subject": ("c", "Deployment", SPACE, "web"),
        "verb": "scale to zero",
    }
    site.journal(actor="ann").append(event_types.APPROVAL_REQUESTED, "abc123", document)
    assert "abc123" in cli("actions").out
    assert "abc123" in cli("actions", "--cluster", "c").out
    assert "abc123" not in cli("actions", "--cluster", "other").out
    ran = cli("approve", "abc123")
    assert ran.code == 3
    assert "somebody else has to approve it" in ran.err
    ran = cli("approve", "abc", "--by", "bob")
    assert ran.code == 0
    assert "is approved by bob" in ran.err
    assert cli("approve", "abc", "--by", "bob").code == 3
    assert "approved" in cli("actions", "abc123").out
    held = compute_decision_id("idle", "f-web", "snapshot")
    assert cli("approve", held, "--by", "cara").code == 0, "the id that a plan has of it"
    assert cli("approve", "0" * 12).code == 2


def test_a_tampered_journal_is_named_at_its_row(site: Site, cli: Fallow) -> None:
    done(site)
    ran = cli("actions", "--verify")
    assert ran.code == 0
    assert "every link holds" in ran.err
    connection = sqlite3.connect(site.folder / "journal.sqlite", isolation_level=None)
    connection.execute("DROP TRIGGER entry_is_never_changed")
    connection.execute("UPDATE entry SET document = '{}' WHERE seq = 3")
    connection.close()
    ran = cli("actions", "--verify")
    assert ran.code == 1
    assert "broken at row 3: it is not what was written" in ran.err
    ran = cli("undo", "x")
    assert ran.code == 1
    assert "nothing acts by it" in ran.err
    assert cli("freeze").code == 0
    assert (site.folder / "FREEZE").exists()


def test_the_kill_switch_works_whatever_became_of_the_journal(site: Site, cli: Fallow) -> None:
    (site.folder / "journal.sqlite").write_text("no database" * 500)
    ran = cli("freeze")
    assert ran.code == 0
    assert "not switched: the journal" in ran.err
    assert (site.folder / "FREEZE").exists()
    assert site.get("ConfigMap", "fallow-freeze", "fallow")["data"]["frozen"] == "true"
