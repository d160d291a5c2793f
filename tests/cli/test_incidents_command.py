"""`fallow incidents` on a stored fleet: a node that is lost and one that is away for a moment."""

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from collectors.inventory import build_batches
from dashboards.text import format_hours
from fallow.settings import load
from fallow.tables import Batch
from tests.analyzers.reliability.recordings import START, WINDOW, fill
from tests.cli.conftest import Fallow
from tests.cli.conftest import fallow as fallow  # noqa: PLC0414  (a fixture)
from tests.failure_cases.cases import read_cases
from tests.failure_cases.recording import CasePlayer
from warehouse.lake import Warehouse

BOUNDS = f"{WINDOW.start:%Y-%m-%dT%H:%MZ}/{WINDOW.end:%Y-%m-%dT%H:%MZ}"


class StoredRows:
    """A warehouse that takes the rows of a recording as the views in memory do."""

    def __init__(self, warehouse: Warehouse) -> None:
        self.warehouse = warehouse

    def put(self, batch: Batch) -> None:
        self.warehouse.ingest([batch])

    def rows(self, table: str, rows: list[dict[str, Any]]) -> None:
        self.warehouse.ingest(build_batches(table, rows))


@pytest.fixture
def home(tmp_path: Path) -> Path:
    settings = load(environ={}, flags={"home": tmp_path}).settings
    with Warehouse.open(settings, write=True) as warehouse:
        for name in ("node lost", "short absence"):
            fill(StoredRows(warehouse), CasePlayer(read_cases()[name], START.timestamp()).play())
    return tmp_path


def test_a_lost_node_has_its_step_and_a_short_absence_is_held(fallow: Fallow, home: Path) -> None:
    ran = fallow("incidents", "--home", home, "--window", BOUNDS, "-o", "json")
    assert ran.code == 0, ran
    answer = json.loads(ran.out)
    assert answer["schema"] == "fallow.incidents/v1"
    steps = {(i["cluster"], i["cause"], i["step"]) for i in answer["incidents"]}
    assert steps == {
        ("node lost", "node lost", "recycle the node"), ("short absence", "unknown", "hold")
    }  # fmt: skip
    (lost,) = (i for i in answer["incidents"] if i["cluster"] == "node lost")
    assert lost["evidence"]
    assert all(e["known_at"] >= e["at"] for e in lost["evidence"])
    assert lost["workloads"]
    assert lost["nodes"]


def test_the_table_is_for_people_and_one_cluster_can_be_chosen(fallow: Fallow, home: Path) -> None:
    ran = fallow("incidents", "--home", home, "--window", BOUNDS, "--cluster", "node lost")
    assert (ran.code, "recycle the node" in ran.out, "hold" in ran.out) == (0, True, False), ran
    assert "1 incident" in ran.err
    assert "Fallow acts only by a policy that enforces (`fallow plan`)" in ran.err


def test_the_share_of_one_cluster_is_of_its_own_hours(fallow: Fallow, home: Path) -> None:
    """14 GPUs of the cluster are paid for a day, 336 GPU-h, beside 24,014.1 of the other one."""
    row = {
        "bucket": START.replace(tzinfo=None), "device": "g", "state": "free", "namespace": "",
        "workload_kind": "", "workload": "", "node": "n", "seconds": 86_400.0,
    }  # fmt: skip
    hours = {"node lost": 336.0, "short absence": 24_014.1}
    with Warehouse.open(load(environ={}, flags={"home": home}).settings, write=True) as warehouse:
        rows = [{**row, "cluster": c, "gpu_seconds": h * 3600} for c, h in hours.items()]
        (batch,) = build_batches("ledger", rows)
        warehouse.replace("ledger", batch.rows, "true")
    words = ("incidents", "--home", home, "--window", BOUNDS, "-o", "json", "--by", "cause")
    both = json.loads(fallow(*words).out)
    assert both["recovery"]["gpu_hours"] == pytest.approx(24_350.1)
    own = json.loads(fallow(*words, "--cluster", "node lost").out)
    assert own["recovery"]["gpu_hours"] == pytest.approx(336)
    assert [group["hours"] for group in own["groups"]] == pytest.approx([336])
    away = {**row, "device": "h", "state": "unavailable", "gpu_seconds": 36_000.0}
    with Warehouse.open(load(environ={}, flags={"home": home}).settings, write=True) as warehouse:
        (batch,) = build_batches("ledger", [*rows, {**away, "cluster": "node lost"}])
        warehouse.replace("ledger", batch.rows, "true")
    own = json.loads(fallow(*words, "--cluster", "node lost").out)
    assert own["recovery"]["gpu_hours"] == pytest.approx(346), "a broken GPU is paid for"
    assert [group["hours"] for group in own["groups"]] == pytest.approx([336]), "and cannot fail"


def test_an_unknown_loss_is_unknown_in_every_sum(fallow: Fallow, home: Path) -> None:
    """No checkpoint was seen: neither the share nor the dollars; 4 GPUs for at most 2 h are 8."""
    words = ("incidents", "--home", home, "--window", BOUNDS, "--cluster", "node lost")
    answer = json.loads(fallow(*words, "-o", "json", "--by", "cause").out)
    (incident,) = answer["incidents"]
    assert (incident["lost_basis"], incident["usd"]) == ("unknown", None)
    share = answer["recovery"]
    assert (share["unknown"], share["lost_gpu_hours"], share["share"]) == (1, None, None)
    assert share["most_lost_gpu_hours"] == incident["most_lost_gpu_hours"]
    assert share["most_lost_gpu_hours"] > 0
    assert [g["gpu_hours"] for g in answer["groups"]] == [None]
    assert [g["most_lost_gpu_hours"] for g in answer["groups"]] == [share["most_lost_gpu_hours"]]
    bound = f"lost work unknown, at most {format_hours(share['most_lost_gpu_hours'])}"
    text = fallow(*words).err
    assert (bound in text, "the cost of 0 of 1 incident is known" in text) == (True, True), text


def test_incidents_by_node_name_the_lost_one_and_no_node_of_a_short_absence(
    fallow: Fallow, home: Path
) -> None:
    words = ("incidents", "--home", home, "--window", BOUNDS, "--by", "node")
    ran = fallow(*words, "-o", "json")
    assert ran.code == 0, ran
    answer = json.loads(ran.out)
    assert (answer["schema"], answer["by"]) == ("fallow.incidents/v1", "node")
    [group] = answer["groups"]
    assert (group["node"], group["cluster"], group["incidents"]) == ("n-0", "node lost", 1)
    assert group["mtbf_h"] is None, "the ledger has no hours of it"
    assert answer["recovery"]["incidents"] == 2
    assert len(answer["incidents"]) == 2
    table = fallow(*words)
    assert ("n-0" in table.out, "the cost of 0 of 2 incidents is known" in table.err) == (
        True,
        True,
    ), table


@pytest.mark.parametrize(
    ("reasons", "commands"),
    [
        ({"PyTorchJobFailed": 45}, 1),
        ({}, 0),
        ({"PyTorchJobRestarting": 45}, 0),
        ({"PyTorchJobFailed": 45, "PyTorchJobRestarting": 46}, 0),
        ({"PyTorchJobRestarting": 45, "PyTorchJobFailed": 46}, 1),
    ],
)
def test_a_job_that_has_failed_for_good_has_its_owners_command(
    fallow: Fallow, tmp_path: Path, reasons: dict[str, int], commands: int
) -> None:
    """The job fails at once from 02:00:40 on; its controller gives up, or starts it again."""
    name = "wrong configuration"
    settings = load(environ={}, flags={"home": tmp_path}).settings
    with Warehouse.open(settings, write=True) as warehouse:
        sink = StoredRows(warehouse)
        fill(sink, CasePlayer(read_cases()[name], START.timestamp()).play())
        for reason, second in reasons.items():
            at = START.replace(tzinfo=None) + timedelta(hours=2, seconds=second)
            sink.rows("event", [{
                "cluster": name, "uid": reason, "ts": at, "namespace": "ml", "kind": "PyTorchJob",
                "name": "job0", "reason": reason, "count": 1,
            }])  # fmt: skip
    ran = fallow("incidents", "--home", tmp_path, "--window", BOUNDS, "-o", "json")
    found = [line for i in json.loads(ran.out)["incidents"] for line in i["owner_commands"]]
    command = (
        "kubectl -n ml get pytorchjobs.kubeflow.org job0 -o yaml | kubectl replace --force -f -"
    )
    assert found == [command] * commands
    table = fallow("incidents", "--home", tmp_path, "--window", BOUNDS)
    assert (f"its owner deletes it and creates it again: {command}" in table.err) == bool(commands)


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (("--window", "soon"), 2, "soon"),
        (("--cluster", "elsewhere"), 2, "elsewhere"),
        (("--by", "team"), 2, "legal are job, node, gpu, model, cause"),
        (("--by", "node", "--window", BOUNDS, "--split", "2026-01-01"), 2, "not inside"),
        (("--by", "node", "--window", BOUNDS, "--split", "later"), 2, "later"),
    ],
)
def test_bad_input_is_refused_in_words(
    fallow: Fallow, home: Path, arguments: tuple[str, ...], code: int, text: str
) -> None:
    ran = fallow("incidents", "--home", home, *arguments)
    assert (ran.code, text in ran.err) == (code, True), ran


def test_one_incident_has_its_fields_and_its_signs_in_time_order(
    fallow: Fallow, home: Path
) -> None:
    words = ("--home", home, "--window", BOUNDS)
    listed = json.loads(fallow("incidents", *words, "-o", "json").out)["incidents"]
    (lost,) = (i for i in listed if i["cause"] == "node lost")
    ran = fallow("incidents", lost["id"], *words)
    assert ran.code == 0, ran.err
    lines = ran.out.splitlines()
    assert lines[:2] == ["cause: node lost", "step: recycle the node"]
    assert f"nodes: {lost['nodes'][0]}" in lines
    signs = [line for line in lines if any(sign["text"] in line for sign in lost["evidence"])]
    assert len(signs) == len(lost["evidence"])
    one = json.loads(fallow("incidents", lost["id"], *words, "-o", "json").out)["incidents"]
    assert [i["id"] for i in one] == [lost["id"]]


@pytest.mark.parametrize(
    ("more", "text"),
    [(["abc"], "no incident 'abc' in "), (["abc", "--by", "node"], "--by is about all incidents")],
)
def test_an_unknown_incident_is_refused(
    fallow: Fallow, home: Path, more: list[str], text: str
) -> None:
    ran = fallow("incidents", *more, "--home", home, "--window", BOUNDS)
    assert (ran.code, text in ran.err) == (2, True), ran.err
