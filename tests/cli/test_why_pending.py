"""`fallow why-pending` on a stored fleet: the command, its JSON and the assistant's tool agree."""

import hashlib
import json
import shlex
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from collectors.inventory import build_batches
from fallow.settings import load
from runtime.operations.answers.fleet_answers import FleetAnswers
from runtime.rendering.untrusted import MARK
from tests.cli.conftest import Fallow
from tests.cli.conftest import fallow as fallow  # noqa: PLC0414  (a fixture)
from warehouse.lake import Warehouse

NOW = datetime.now(UTC).replace(microsecond=0)
THEN = NOW.replace(tzinfo=None)


def row_of(cluster: str, **more: Any) -> dict[str, Any]:
    first = THEN - timedelta(hours=1)
    return {"cluster": cluster, "first_seen": first, "last_seen": THEN, **more}


def build_pod(cluster: str, workload: str) -> dict[str, Any]:
    """Return the row of a pod of 8 GPUs that waits."""
    return row_of(
        cluster, uid=f"{cluster}-{workload}", namespace="ml", pod=f"{workload}-0", phase="Pending",
        workload_kind="Job", workload=workload, gpu_request=8.0, gpu_resource="nvidia.com/gpu",
        created_at=THEN - timedelta(hours=1),
    )  # fmt: skip


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Return a home of two clusters: a job of 8 GPUs waits in the first, the second has 8 free."""
    nodes = [
        row_of("a", node="n1", uid="1", gpu_count=4, ready=True, pool="small"),
        row_of("b", node="m1", uid="2", gpu_count=8, ready=True, pool="big"),
    ]
    devices = [
        row_of(node["cluster"], device=f"{node['node']}/{n}", node=node["node"], weight=1.0)
        for node in nodes
        for n in range(node["gpu_count"])
    ]
    pod = build_pod("a", "train")
    settings = load(environ={}, flags={"home": tmp_path}).settings
    with Warehouse.open(settings, write=True) as warehouse:
        for table, rows in (("node", nodes), ("device", devices), ("pod", [pod])):
            warehouse.ingest(build_batches(table, rows))
    return tmp_path


def test_the_queue_of_a_cluster_that_is_not_there_is_refused(fallow: Fallow, home: Path) -> None:
    assert fallow("queue", "--home", home, "--cluster", "b").code == 0
    ran = fallow("queue", "--home", home, "--cluster", "nobody")
    assert (ran.code, ran.out) == (2, ""), ran
    assert ran.err == "fallow: no data of cluster 'nobody'\nhint: clusters: a, b\n"


def test_the_command_and_the_assistant_name_the_cluster_with_room(
    fallow: Fallow, home: Path
) -> None:
    ran = fallow("why-pending", "train", "--home", home, "-o", "json")
    assert ran.code == 0, ran
    shown = json.loads(ran.out)
    assert (shown["schema"], shown["workload"]) == ("fallow.why_pending/v1", "Job/ml/train")
    assert (shown["answer"], shown["gpus"]) == ("fits_elsewhere", 8.0)
    first, own = shown["why_pending"]
    assert (first["cluster"], first["state"], first["free"]) == ("b", "fits", 8)
    assert (first["nodes"], own["why"]) == (
        ["m1"],
        "it needs 8 whole GPUs on one node, 4 are free",
    )
    settings = load(environ={}, flags={"home": home}).settings
    answer = FleetAnswers(settings, {"home": str(home)}).why_pending("train", 50)
    program, *words = shlex.split(answer["proof"]["command"][MARK])
    assert program == "fallow"
    again = fallow(*words)
    assert hashlib.sha256(again.out.encode()).hexdigest() == answer["proof"]["sha256"]
    result = answer["answer"]["why_pending"]
    assert [(row["state"][MARK], row["free"]) for row in result] == [
        (row["state"], row["free"]) for row in json.loads(again.out)["why_pending"]
    ]


def test_a_job_of_one_name_in_two_clusters_is_named_by_its_cluster(
    fallow: Fallow, home: Path
) -> None:
    settings = load(environ={}, flags={"home": home}).settings
    pod = row_of(
        "b", uid="q", namespace="ml", pod="train-0", phase="Pending", workload_kind="Job",
        workload="train", gpu_request=16.0, gpu_resource="nvidia.com/gpu",
        created_at=THEN - timedelta(hours=1),
    )  # fmt: skip
    with Warehouse.open(settings, write=True) as warehouse:
        warehouse.ingest(build_batches("pod", [pod]))
    ran = fallow("why-pending", "train", "--home", home)
    assert (ran.code, "Job/ml/train is in a and b" in ran.err) == (2, True), ran
    assert "--cluster a" in ran.err
    for cluster, answer in (("a", "fits_elsewhere"), ("b", "nowhere")):
        ran = fallow("why-pending", "train", "--home", home, "--cluster", cluster, "-o", "json")
        assert ran.code == 0, ran
        shown = json.loads(ran.out)
        assert (shown["cluster"], shown["answer"]) == (cluster, answer)
    records = json.loads(fallow("queue", "--home", home, "-o", "json").out)["queue"]
    assert sorted((r["cluster"], r["gpus"]) for r in records) == [("a", 8.0), ("b", 16.0)]


def test_the_queue_has_the_same_record_as_why_pending(fallow: Fallow, home: Path) -> None:
    ran = fallow("queue", "--home", home, "-o", "json")
    assert ran.code == 0, ran
    document = json.loads(ran.out)
    (record,) = document["queue"]
    assert record.pop("at_once") is True
    assert (document["schema"], record["workload"]) == ("fallow.queue/v1", "Job/ml/train")
    assert (record["gpus"], record["waiting_cost"], record["in_bill"]) == (8.0, None, False)
    assert record["gpu_hours"] == pytest.approx(8.0, abs=0.01)
    assert [(r["reason"], r["source"]) for r in record["reasons"]] == [("no_fit", "placement")]
    first = record["ways"][0]
    assert (first["way"], first["state"], first["cluster"], first["nodes"]) == (
        "elsewhere", "holds", "b", ["m1"],
    )  # fmt: skip
    alone = json.loads(fallow("why-pending", "train", "--home", home, "-o", "json").out)
    assert {name: alone[name] for name in record} == record
    settings = load(environ={}, flags={"home": home}).settings
    answer = FleetAnswers(settings, {"home": str(home)}).queue(50)
    assert answer["answer"]["queue"][0]["gpus"] == 8.0
    assert answer["proof"]["command"] == f"fallow queue --home {home} -o json"
    digest = hashlib.sha256(fallow(*shlex.split(answer["proof"]["command"])[1:]).out.encode())
    assert digest.hexdigest() == answer["proof"]["sha256"]


def test_two_jobs_that_wait_for_one_free_place_are_one_way_in_at_once(
    fallow: Fallow, home: Path
) -> None:
    """Two jobs request 8 GPUs each, and 8 are free: each of them fits, both do not."""
    settings = load(environ={}, flags={"home": home}).settings
    with Warehouse.open(settings, write=True) as warehouse:
        warehouse.ingest(build_batches("pod", [build_pod("a", "other")]))
    ran = fallow("queue", "--home", home, "-o", "json")
    records = json.loads(ran.out)["queue"]
    assert [r["ways"][0]["state"] for r in records] == ["holds", "holds"]
    assert [r["at_once"] for r in records] == [True, False]
    assert "2 with a way in, 1 of them at once" in fallow("queue", "--home", home).err


def test_the_table_is_for_people_and_a_name_that_does_not_wait_is_refused(
    fallow: Fallow, home: Path
) -> None:
    ran = fallow("why-pending", "Job/ml/train", "--home", home)
    assert ran.code == 0, ran
    assert "fits elsewhere: all of its pods fit in cluster b" in ran.err
    ran = fallow("why-pending", "other", "--home", home)
    assert ran.code == 2
    assert ran.err == (
        "fallow: no workload 'other' waits for GPUs\n"
        "hint: `fallow queue` lists those that wait: Job/ml/train\n"
    )


def test_a_name_that_several_have_gets_the_hint_that_chooses_one(
    fallow: Fallow, home: Path
) -> None:
    twins = [build_pod("b", "train"), *(build_pod("a", f"sweep-{n}") for n in range(30))]
    with Warehouse.open(load(environ={}, flags={"home": home}).settings, write=True) as warehouse:
        warehouse.ingest(build_batches("pod", twins))
    ran = fallow("why-pending", "train", "--home", home)
    assert ran.code == 2
    assert ran.err == "fallow: Job/ml/train is in a and b\nhint: name one of them: --cluster a\n"
    ran = fallow("why-pending", "train", "--home", home, "--cluster", "a")
    assert ran.code == 0, ran
    ran = fallow("why-pending", "sweep", "--home", home)
    assert (ran.code, "'sweep' may be several workloads" in ran.err) == (2, True)
    assert ran.err.endswith(" and 22 more\n")
    assert "train" not in ran.err
    ran = fallow("why-pending", "absent", "--home", home)
    assert ran.err.endswith(" and 23 more\n"), "a long queue is no part of a message"
