"""A look back sees the annotations, labels and teams of then, not those of today.

Sources: opencost/opencost#152 (namespaces' costs of a week do not add up to those of their label),
kubernetes-sigs/karpenter#1167 (whether an annotation held when something was stopped).
"""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.field.history import Scrape, scrape_job, scrape_node
from tests.field.resting import budget
from tests.field.site import HOUR, IDLE, Fallow, Site, ago, build_pod, write_time
from tests.servers.prometheus import blocks, serving

HOURS = 30
CHANGE = 12
"""Hours before the present at which the marks change."""
REST = {**IDLE, "DCGM_FI_DEV_POWER_USAGE": 50.0}
KEEP = {"annotations": {"fallow_dev_keep": "true"}}
OTHER = {"annotations": {"example_com_note": "true"}}
KEPT = {"fallow.dev/keep": "true"}
COVERED = {"labels": {"app": "covered"}}
RED, BLUE = {"labels": {"team": "red"}}, {"labels": {"team": "blue"}}
POLICY = """
name: stop-what-rests
mode: enforce
match: {analyzer: idle, evidence: confirmed}
allow: {namespaces: [ml], kinds: [Job]}
stages: [observe, notify, {grace: 1h}, {act: suspend}]
budgets: [{workloads: 1000, per: 1d}]
max_resources: 100%
"""
CONFIG = "idle: {service_duration: 2h, min_expected_rest: null}\nprices: {usd_per_gpu_hour: 2}\n"


def rest(name: str, before: dict[str, Any], after: dict[str, Any]) -> list[Scrape]:
    """Return the series of a job that rests all the time and whose marks change."""
    times: dict[str, Any] = {"since": HOURS, "until": 0, "every_s": 60}
    whole = scrape_job(
        f"n-{name}", REST, model="NVIDIA A30", pod=f"{name}-0", owner=("Job", name), **times
    )
    marks = [
        one
        for words, since, until in ((before, HOURS, CHANGE), (after, CHANGE, 0))
        for one in scrape_job(
            f"n-{name}", REST, model="NVIDIA A30", pod=f"{name}-0", owner=("Job", name),
            **times | {"since": since, "until": until}, **words,
        )
        if one.name in {"kube_pod_annotations", "kube_pod_labels"}
    ]  # fmt: skip
    return [*scrape_node(f"n-{name}", 1, since=HOURS), *whole, *marks]


@pytest.fixture(scope="module")
def past(shared_fallow: tuple[Fallow, Path]) -> Site:
    """Return a site whose Prometheus has seen the marks of three jobs change."""
    fallow, folder = shared_fallow
    scrapes = [
        *rest("kept-then", KEEP, OTHER),
        *rest("kept-today", OTHER, KEEP),
        *rest("moved", {**OTHER, **RED}, {**OTHER, **BLUE}),
        *rest("covered", OTHER | COVERED, OTHER | COVERED),
    ]
    (folder / "fallow.yaml").write_text(CONFIG)
    (folder / "policy.yaml").write_text(POLICY)
    text = "".join(dict.fromkeys(one.write("") for one in scrapes))
    site = Site(fallow, folder)
    with serving(blocks(f"{text}# EOF\n", folder / "prometheus")) as url:
        answer = site.run("import", "prometheus", "--url", url, "--since", write_time(ago(HOURS)))
    assert answer.code == 0, answer.err
    # The inventory of today names the owners' uids.
    names: Mapping[str, Mapping[str, str]] = {
        "kept-then": {}, "kept-today": KEPT, "moved": {}, "covered": {}
    }  # fmt: skip
    marks = {"moved": BLUE["labels"], "covered": COVERED["labels"]}
    pods = [
        build_pod(
            f"{name}-0", f"n-{name}", gpus=1, owner=("Job", name), born=HOURS + 2,
            annotations=notes, labels=marks.get(name, {}),
        )
        for name, notes in names.items()
    ]  # fmt: skip
    for pod in pods:
        name = pod["metadata"]["name"]
        pod["metadata"]["uid"] = f"uid-ml-{name}-"
        pod["metadata"]["ownerReferences"][0] |= {
            "apiVersion": "batch/v1",
            "uid": f"uid-{name[:-2]}",
        }
    jobs = [build_owner(name) for name in names]
    keeper = budget("keeper", COVERED["labels"], 0)
    keeper["metadata"]["creationTimestamp"] = write_time(ago(CHANGE))
    answer = site.import_objects(*pods, *jobs, keeper)
    assert answer.code == 0, answer.err
    return site


def read_time(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def build_owner(name: str) -> dict[str, Any]:
    return {
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {
            "name": name, "namespace": "ml", "uid": f"uid-{name}",
            "creationTimestamp": write_time(ago(HOURS + 2)),
        },
        "spec": {"parallelism": 1},
    }  # fmt: skip


def test_a_replay_holds_what_was_kept_then_and_not_what_is_kept_today(past: Site) -> None:
    """The inventory is read every six hours: a change is known that much later at most.

    The budget that covers a job was created twelve hours ago: before, nothing held the job.
    """
    answer = past.run(
        "backtest", "stop-what-rests", "--policies", past.folder / "policy.yaml",
        "--window", f"{write_time(ago(HOURS))}/{write_time(ago(0))}", "--dry-run", "-o", "json",
    )  # fmt: skip
    stops = {
        stop["workload"].rpartition("/")[2]: (
            (ago(0) - read_time(stop["at"])) / HOUR, stop["marks_seen"]
        )
        for stop in json.loads(answer.out)["stops"]
    }  # fmt: skip
    at_once = (27.0, "after")  # the first reading of the inventory is that of 24 hours ago
    assert {name: stops.pop(name) for name in ("kept-today", "moved", "covered")} == dict.fromkeys(
        ("kept-today", "moved", "covered"), at_once
    )
    (kept_until, seen), *others = stops.values()
    assert seen == "before"
    assert kept_until == pytest.approx(CHANGE / 2, abs=3)
    assert not others


@pytest.mark.long  # tests/ledger/test_node_eras.py has the hours of a team that changes
def test_the_hours_before_a_change_are_of_the_team_of_then(past: Site) -> None:
    """Labels changed 12 hours ago, seen by the next reading of the inventory."""
    window = ("--window", f"{write_time(ago(HOURS))}/{write_time(ago(0))}")
    rows = past.read_json("spend", "--by", "workload,team", *window)["spend"]
    hours = {row["team"]: row["gpu_hours"] for row in rows if row["workload"].endswith("moved")}
    assert hours.keys() == {"red", "blue"}
    assert hours["red"] == pytest.approx(HOURS - CHANGE + 3, abs=3)
    assert hours["red"] + hours["blue"] == pytest.approx(HOURS, abs=0.01)
    held = past.query("SELECT team FROM allocation WHERE workload = 'moved' ORDER BY start")
    assert [row["team"] for row in held] == ["red", "blue"]
