"""Values in `env` of real workloads: stopped and undone, and no byte that we keep has them."""

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from actions.cluster.literal_values import find_literals, hide_literals
from actions.journal.warehouse_copy import copy_journal
from actions.loop.undo import undo
from actions.policy.model import Stage
from actions.snapshots import Snapshotter
from actions.snapshots.store import FolderStore
from fallow.settings import Settings
from fallow.settings.snapshots import SnapshotSettings
from tests.actions.loop.site import POLICY, SETTINGS, Object, Site, bare, pod_spec
from warehouse.lake import Warehouse

MARKER = "marker-env-of-a-pod"
URL = f"--url=https://me:{MARKER}@db/x"
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
SNAPSHOT = msgspec.structs.replace(
    POLICY,
    stages=(
        *POLICY.stages[:2],
        Stage("snapshot", parts=("manifest",), required=True),
        *POLICY.stages[2:],
    ),
)


class NoCommands:
    """A container in which no command may run: only the manifest is kept."""

    def run(self, place: Any, command: Any, stdin: Any = None, *, most_bytes: int = 0) -> Any:
        raise AssertionError((place, command, stdin, most_bytes))


def marked_spec(**more: Any) -> Object:
    """Return a pod's spec with the marker in every env and in an argument."""
    spec = pod_spec()
    env = [
        {"name": "TOKEN", "value": MARKER},
        {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
    ]
    spec["containers"][0] |= {"env": env, "args": [URL]}
    before = {"name": "before", "image": "work:1", "env": env[:1]}
    return {**spec, "initContainers": [before], **more}


def make_workloads(site: Site) -> dict[tuple[str, str], Object]:
    """Make an idle workload of each kind; return each as it is before anything acts."""
    labels = {"app": "s"}
    template = {"metadata": {"labels": labels}, "spec": marked_spec()}
    replicated = {"replicas": 1, "selector": {"matchLabels": labels}, "template": template}
    job = {"template": {"spec": marked_spec(restartPolicy="Never")}, "suspend": False}
    site.make("Deployment", "web", replicated)
    site.make("StatefulSet", "set", {"serviceName": "s", **replicated})
    site.make("Job", "night", job)
    site.make("Notebook", "nb", {"template": {"spec": marked_spec()}})
    site.make("Pod", "alone", marked_spec())
    owned = [("Deployment", "web"), ("StatefulSet", "set"), ("Job", "night"), ("Notebook", "nb")]
    for kind, name in [*owned, ("Pod", "alone")]:
        notes = {"fallow.dev/evict": "true"}
        if kind != "Pod":
            notes[LAST_APPLIED] = json.dumps(bare(site.get(kind, name)))
        site.patch(kind, name, {"metadata": {"annotations": notes}}, manager="kubectl-annotate")
        site.evidence.idle.append((kind, name))
    site.pass_time(minutes=3)
    return {key: bare(site.get(*key)) for key in owned}


def find_marker(folder: Path) -> list[str]:
    return [
        str(path.relative_to(folder))
        for path in sorted(folder.rglob("*"))
        if path.is_file() and MARKER.encode() in path.read_bytes()
    ]


def test_no_value_of_env_is_kept_by_notice_act_snapshot_and_undo(
    site: Site, settings: Settings, capfd: pytest.CaptureFixture[str]
) -> None:
    before = make_workloads(site)
    keeper = Snapshotter(
        site.door(),
        NoCommands(),
        FolderStore(site.folder / "snapshots"),
        SnapshotSettings(),
        clock=lambda: site.now,
    )
    site.policy = SNAPSHOT
    site.settings = SETTINGS.model_copy(update={"concurrent": 10})
    actor = site.actor(snapshotter=keeper)
    actor.turn(dry_run=False)
    actor.turn(dry_run=False)
    site.now += timedelta(hours=2)
    site.settle()
    report = actor.turn(dry_run=False)
    results = {t.decision.subject[1]: (t.result, t.reasons) for t in report.steps}
    assert {kind: result for kind, (result, _) in results.items()} == {
        **dict.fromkeys(("Deployment", "StatefulSet", "Job", "Notebook"), "acted"),
        "Pod": "refused",
    }, results
    (why,) = results["Pod"][1]
    assert "containers main: env TOKEN" in why.text
    assert "valueFrom" in why.text
    assert site.writes("/eviction") == []

    site.pass_time(minutes=3)
    actor.turn(dry_run=False)
    for state in list(actor.record.actions.values()):
        assert undo(actor.context, state, "ann").result == "undone"
    site.pass_time(minutes=3)
    actor.turn(dry_run=False)
    assert {key: bare(site.get(*key)) for key in before} == before

    with Warehouse.open(settings, write=True) as lake:
        assert copy_journal(site.journal(), lake, "c") > len(before)
        rows = lake.query("FROM action").to_pylist()
    manifests = sorted((site.folder / "snapshots").rglob("manifests.json"))
    assert len(manifests) == len(before)
    assert all("TOKEN" in path.read_text() for path in manifests)
    assert find_marker(site.folder) == []
    assert find_marker(settings.home) == []
    outcome_text = [notice.text for notice in site.told.notices]
    answer = capfd.readouterr()
    assert MARKER not in json.dumps(rows, default=str)
    assert MARKER not in f"{report}{outcome_text}{answer.out}{answer.err}"


@pytest.mark.parametrize(
    ("spec", "place"),
    [
        ({"containers": [{"name": "a", "env": [{"name": "X", "value": "1"}]}]},
         "containers a: env X"),
        ({"initContainers": [{"name": "i", "env": [{"name": "X", "value": "1"}]}]},
         "initContainers i: env X"),
        ({"ephemeralContainers": [{"name": "e", "env": [{"name": "X", "value": "1"}]}]},
         "ephemeralContainers e: env X"),
        ({"containers": [{"name": "a", "args": ["-v", "password=abc"]}]}, "containers a: args"),
        ({"containers": [{"name": "a", "command": ["sh", "-c", "curl https://a:b@c"]}]},
         "containers a: command"),
        ({"driver": {"envVars": {"X": "1"}}}, "envVars X"),
        ({"runtimeEnvYAML": "env_vars: {X: 1}"}, "runtimeEnvYAML"),
    ],
)  # fmt: skip
def test_a_literal_value_is_named_by_its_place_and_hidden(spec: Object, place: str) -> None:
    assert find_literals(spec) == [place]
    assert find_literals(hide_literals(spec)) in ([], [place])
    assert not {"1", "abc", "a:b@", "env_vars"} & set(json.dumps(hide_literals(spec)).split('"'))


@pytest.mark.parametrize(
    "spec",
    [
        {"containers": [{"name": "a", "envFrom": [{"secretRef": {"name": "s"}}]}]},
        {"containers": [{"name": "a", "env": [{"name": "X", "valueFrom": {"fieldRef": {}}}]}]},
        {"containers": [{"name": "a", "env": [{"name": "EMPTY", "value": ""}, {"name": "X"}]}]},
        {"containers": [{"name": "a", "args": ["--port=8080", "train.py"]}]},
        {"environment": "a", "env": None},
    ],
)
def test_what_has_no_literal_value_is_stored_as_it_is(spec: Object) -> None:
    assert find_literals(spec) == []
    assert hide_literals(spec) == spec
