"""What a day of a real server become: devices, holders, nodes, owners, and the use of hosts."""

import csv
import io
import re
import statistics
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import pytest

from tests.servers.prometheus import _PODS, EVAL_ENDS, H100, MIG, SENTINELS, START

pytestmark = pytest.mark.xdist_group("prometheus")
Rows = Mapping[str, list[dict[str, Any]]]
PODS = {row["pod"]: row for row in csv.DictReader(io.StringIO(_PODS)) if row["resource"]}
ENDED = EVAL_ENDS.replace(tzinfo=None)
WORKLOADS = {
    "llm-pretrain-worker-0": ("PyTorchJob", "llm-pretrain"),
    "jupyter-alice": ("Notebook", "jupyter-alice"),
    "fraud-scorer-6d8f7c9b5-x2k4q": ("Deployment", "fraud-scorer"),
    "sweep-17-9hf2c": ("CronJob", "sweep"),
    "bert-embed-5f7": ("Deployment", "bert-embed"),
    "jupyter-bob": ("Pod", "jupyter-bob"),
    "eval-9qk2": ("Job", "eval"),
    "infer-0": ("StatefulSet", "infer"),
    "infer-1": ("StatefulSet", "infer"),
    "infer-2": ("StatefulSet", "infer"),
}


def last(rows: list[dict[str, Any]], *keys: str) -> dict[tuple[Any, ...], dict[str, Any]]:
    return {tuple(row[k] for k in keys): row for row in rows}


def test_both_spellings_of_the_host_name_lead_to_nodes(past_rows: Rows) -> None:
    devices = last(past_rows["sample"], "device", "node")
    by_node = [node for _, node in devices]
    assert {node: by_node.count(node) for node in set(by_node)} == {H100: 8, MIG: 11}


def test_the_workload_is_found_whether_or_not_its_labels_were_renamed(past_rows: Rows) -> None:
    holders = {(r["pod"], r["namespace"], r["node"]) for r in past_rows["sample"] if r["pod"]}
    assert holders == {(p["pod"], p["namespace"], p["node"]) for p in PODS.values()}
    assert not [r for r in past_rows["sample"] if "dcgm" in (r["pod"] or r["container"] or "")]


def test_a_mig_instance_is_a_device_of_its_own_under_its_board(past_rows: Rows) -> None:
    instances = [r for (_,), r in last(past_rows["sample"], "device").items() if r["node"] == MIG]
    assert {r["device"] for r in instances} > {
        f"{r['parent']}/gi{n}"
        for r in instances
        if r["profile"] == "3g.20gb"
        for n in (1, 5, 13, 14)
    }
    profiles = [r["profile"] for r in instances]
    assert {p: profiles.count(p) for p in set(profiles)} == {
        "1g.5gb": 9,
        "2g.10gb": 1,
        "3g.20gb": 1,
    }
    assert {r["parent"] for r in instances} == {r["device"].partition("/")[0] for r in instances}


def test_an_instance_changes_hands_when_its_job_ends(past_rows: Rows) -> None:
    freed = [r for r in past_rows["sample"] if r["device"].endswith("/gi14")]
    assert {r["pod"] for r in freed if r["ts"] < ENDED} == {"eval-9qk2"}
    assert {r["pod"] for r in freed if r["ts"] >= ENDED} == {None}


def test_sentinels_are_missing_values_and_are_counted(past_rows: Rows) -> None:
    blank = [r for r in past_rows["sample"] if r["node"] == MIG]
    for column in ("temp_c", "mem_temp_c", "sm_active"):
        assert {r[column] for r in blank} == {None}
    assert {r["temp_c"] is None for r in past_rows["sample"] if r["node"] == H100} == {False}
    rejected = sum(sample["rejected"] for sample in past_rows["scrape"])
    assert rejected == len(SENTINELS) * len(blank)


def test_every_stored_sample_has_its_own_moment_and_interval(past_rows: Rows) -> None:
    first = min(r["ts"] for r in past_rows["sample"] if r["node"] == H100)
    assert first == START.replace(tzinfo=None) + timedelta(seconds=7.131)
    assert {r["interval_s"] for r in past_rows["sample"]} == {120.0}
    assert len(last(past_rows["sample"], "device", "ts")) == len(past_rows["sample"])


def test_pods_have_the_owners_teams_and_requests_that_were_planted(past_rows: Rows) -> None:
    pods = last(past_rows["pod"], "pod")
    assert {pod for (pod,) in pods} == set(PODS)
    for (name,), row in pods.items():
        planted = PODS[name]
        assert (row["workload_kind"], row["workload"]) == WORKLOADS[name]
        assert (row["namespace"], row["node"]) == (planted["namespace"], planted["node"])
        assert row["team"] == planted["team"]
        assert re.sub(r"\W", "_", row["gpu_resource"]) == planted["resource"]
        assert (row["cpu_request_milli"], row["memory_request_bytes"]) == (4000, 2**34)
        assert row["phase"] == "Running"
    slices = {n: r["gpu_request"] for (n,), r in pods.items() if "mig" in r["gpu_resource"]}
    assert slices["bert-embed-5f7"] == pytest.approx(3 / 7)
    assert slices["infer-0"] == pytest.approx(1 / 7)
    assert pods["llm-pretrain-worker-0",]["gpu_request"] == 4


def test_pods_live_as_long_as_their_series(past_rows: Rows) -> None:
    lives: dict[str, tuple[Any, Any]] = {}
    for row in past_rows["pod"]:
        first, end = lives.get(row["pod"], (row["first_seen"], row["last_seen"]))
        lives[row["pod"]] = min(first, row["first_seen"]), max(end, row["last_seen"])
    near = timedelta(minutes=6)
    assert abs(lives["eval-9qk2"][1] - ENDED) <= near
    assert all(abs(first - START.replace(tzinfo=None)) <= near for first, _ in lives.values())


def test_nodes_have_the_devices_and_labels_that_were_planted(past_rows: Rows) -> None:
    nodes = {name: row for (name,), row in last(past_rows["node"], "node").items()}
    assert {n: (r["gpu_count"], r["instance_type"], r["sharing"]) for n, r in nodes.items()} == {
        H100: (8, "p5.48xlarge", "none"),
        MIG: (2, "p4d.24xlarge", "mig"),
    }
    for row in nodes.values():
        assert (row["provider"], row["region"], row["zone"]) == ("aws", "us-west-2", "us-west-2a")
        assert (row["capacity_type"], row["ready"], row["unschedulable"]) == (
            ("on-demand", True, False)
        )
        assert (row["cpu_milli"], row["memory_bytes"]) == (192_000, 2**41)


def test_the_use_of_hosts_is_per_pod_also_across_a_restart(past_rows: Rows) -> None:
    used: dict[str, list[float]] = {}
    for row in past_rows["pod_sample"]:
        used.setdefault(row["pod"], []).append(row["cpu_cores"])
        assert row["memory_bytes"] == 3 * 2**30
        assert row["net_rx_bps"] == pytest.approx(1000, rel=0.02)
        assert row["interval_s"] == 300
    assert set(used) == set(PODS)  # kube-proxy holds no device and is not asked for
    for name, cores in used.items():
        planted = float(PODS[name]["cores"])
        assert statistics.median(cores) == pytest.approx(planted, rel=0.01, abs=2e-4)
        assert max(cores) == pytest.approx(planted, rel=0.3)  # a restart is no burst
    ended = max(r["ts"] for r in past_rows["pod_sample"] if r["pod"] == "eval-9qk2")
    assert ended < ENDED
