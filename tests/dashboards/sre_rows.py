"""Rows of one small cluster, of which each figure for the fleet is known by heart."""

import json
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from fallow.tables import Batch

END = datetime(2026, 11, 16, tzinfo=UTC)
LAST = END.replace(tzinfo=None) - timedelta(hours=1)
JOB = "red/Job/train"
"""Two GPUs of node one; it works on the first and idles on the second."""


def batch(table: str, rows: list[dict[str, Any]]) -> Batch:
    """Return rows as a batch; a column that a row lacks is null."""
    names = {name: None for row in rows for name in row}
    return Batch.of(table, {name: [row.get(name) for row in rows] for name in names})


def fleet(hours: int = 24) -> list[Batch]:
    """Return two nodes of four GPUs in all: one works, one idles, one is free, one is away."""
    begin = LAST - timedelta(hours=hours - 1)
    states = ("productive", "idle", "free", "unavailable")
    ledger, devices, samples = [], [], []
    for n, state in enumerate(states):
        node, held = ("one" if n < 2 else "two"), n < 2
        name = f"GPU-{n}"
        devices.append(
            {
                "cluster": "c", "device": name, "node": node, "gpu_model": "H100", "weight": 1.0,
                "interval_s": 60.0, "first_seen": begin, "last_seen": LAST + timedelta(hours=1),
            }
        )  # fmt: skip
        for hour in range(hours):
            at = begin + timedelta(hours=hour)
            ledger.append(
                {
                    "cluster": "c", "bucket": at, "device": name, "state": state,
                    "namespace": "red" if held else "", "workload_kind": "Job" if held else "",
                    "workload": "train" if held else "", "team": "red" if held else None,
                    "node": node, "pool": "p", "model": "H100", "seconds": 3600.0,
                    "gpu_seconds": 3600.0, "usd": 2, "usd_gpu": 1, "priced": True,
                }
            )  # fmt: skip
            samples.append(
                {
                    "cluster": "c", "bucket": at, "device": name, "node": node,
                    "namespace": "red" if held else "", "pod": "train-0" if held else "",
                    "model": "H100", "n": 60, "expected": 60.0, "covered_s": 3600.0,
                    "idle_s": 0.0, "low_s": 0.0, "busy_s": 3600.0, "conflict_s": 0.0,
                    "blind_s": 0.0, "interval_s": 60.0,
                    "act_n": 60, "act_min": 0.0, "act_mean": 0.5 if n == 0 else 0.0,
                    "act_max": 0.75 if n == 0 else 0.0, "act_hist": [0] * 21,
                    "power_w_n": 60, "power_w_mean": 100.0 * (n + 1),
                    "mem_used_bytes_n": 60, "mem_used_bytes_mean": 1e9,
                    "sm_clock_mhz_mean": 1000.0 if n == 3 else 2000.0,
                    "throttle_mask": 64 if n == 3 and hour < 6 else 1,
                    "temp_c_max": 90.0 if n == 3 else 60.0,
                    "xid_max": 79 if n == 3 and hour >= hours - 2 else 0,
                }
            )  # fmt: skip
    return [batch("device", devices), batch("ledger", ledger), batch("rollup_1h", samples)]


def pods() -> list[Batch]:
    """Return one pod that was placed after an hour, one that waits for 8 GPUs, one that gave up."""
    seen = {"cluster": "c", "namespace": "red", "last_seen": END.replace(tzinfo=None)}
    wanted = LAST - timedelta(hours=9)
    rows = [
        {
            **seen, "uid": "a", "pod": "train-0", "workload_kind": "Job", "workload": "train",
            "team": "red", "gpu_request": 2.0, "node": "one", "created_at": wanted,
            "scheduled_at": wanted + timedelta(hours=1), "started_at": wanted + timedelta(hours=1),
            "phase": "Running", "queue": "q",
        },
        {
            **seen, "uid": "b", "pod": "big-0", "workload_kind": "Job", "workload": "big",
            "team": "blue", "gpu_request": 8.0, "created_at": LAST - timedelta(hours=4),
            "phase": "Pending", "queue": "q",
        },
        {
            **seen, "uid": "c", "pod": "gone-0", "workload_kind": "Job", "workload": "gone",
            "team": "blue", "gpu_request": 1.0, "created_at": LAST - timedelta(hours=4),
            "phase": "Pending", "last_seen": LAST - timedelta(hours=2),
        },
    ]  # fmt: skip
    allocations = [
        {
            "cluster": "c", "device": f"GPU-{n}", "pod_uid": "a", "namespace": "red",
            "pod": "train-0", "workload_kind": "Job", "workload": "train", "team": "red",
            "start": wanted + timedelta(hours=1), "end": END.replace(tzinfo=None), "share": 1.0,
        }
        for n in (0, 1)
    ]  # fmt: skip
    events = [
        {
            "cluster": "c", "uid": "e1", "ts": LAST - timedelta(hours=3), "namespace": "red",
            "kind": "Pod", "name": "big-0", "reason": "FailedScheduling", "type": "Warning",
            "message": "0/2 nodes are available: 2 Insufficient nvidia.com/gpu.", "count": 1,
        },
        {
            "cluster": "c", "uid": "e2", "ts": LAST - timedelta(hours=2), "namespace": "",
            "kind": "Node", "name": "two", "reason": "NodeNotReady", "type": "Warning",
            "message": "kubelet stopped posting", "count": 1,
        },
    ]  # fmt: skip
    return [batch("pod", rows), batch("allocation", allocations), batch("event", events)]


def quotas() -> list[Batch]:
    """Return two words of one queue, the later of which counts."""
    return [
        batch(
            "quota",
            [
                {
                    "cluster": "c", "ts": LAST - timedelta(hours=hours), "kind": "ClusterQueue",
                    "namespace": "", "name": "q", "resource": "nvidia.com/gpu", "nominal": 4.0,
                    "used": used, "waiting": 8.0, "borrowed": 0.0, "pending": 1, "parent": "all",
                }
                for hours, used in ((5, 1.0), (1, 3.0))
            ],
        )
    ]  # fmt: skip


def finding(analyzer: str, kind: str, named: str, details: dict[str, Any], **more: Any) -> Batch:
    """Return one finding with what its analyzer writes into its details."""
    kind_of = "NodePool" if analyzer == "fragmentation" else "Quota"
    subject = {"cluster": "c", "namespace": "", "workload_kind": kind_of, "workload": named}
    return batch(
        "finding",
        [
            {
                "id": f"{analyzer[:3]}-{kind[:6]}", "analyzer": analyzer, "kind": kind, **subject,
                "start": LAST - timedelta(hours=23), "end": END.replace(tzinfo=None),
                "found_at": END.replace(tzinfo=None), "verdict": "wasteful",
                "evidence": "confirmed", "confidence": 0.9, "gpu_hours": 12.0, "usd": Decimal(24),
                "document": json.dumps(
                    {"subject": subject, "details": details, "recommendations": []}
                ),
                **more,
            }
        ],
    )  # fmt: skip


def together(*batches: Batch) -> Batch:
    """Return several batches of one table as one: storing a table replaces what was there."""
    return batch(batches[0].table, [row for one in batches for row in one.rows.to_pylist()])


STARVED = {
    "why": "its guarantee was broken",
    "starved_gpu_hours": 9.0,
    "above_their_guarantee_meanwhile": {"greedy": 6.0, "other": 3.0},
}
FRAGMENTED = {
    "why": "of 3 idle GPUs",
    "idle_gpus": 3.0,
    "unusable_gpus": 2.0,
    "whole_free_gpus": 3,
    "largest_job_gpus": 2,
    "by_cause": {"lack_gpu": 2.0, "lack_cpu": 0.5, "cpu_only_demand": 3.0},
    "unusable_by_cause": {"lack_gpu": 0.5, "lack_cpu": 1.5},
    "packing": {"8": {"jobs_that_fit": 0, "packability": 0.0}, "1": {"jobs_that_fit": 3}},
    "caused_by": [
        {"namespace": "red", "workload_kind": "Job", "workload": "train", "gpus_lost": 1.5}
    ],
    "plan": {
        "slot": {"gpus": 2},
        "slots_freed": 1,
        "restarts": 1,
        "fewest_possible": 1,
        "proven_fewest": True,
        "on_nodes": ["one"],
        "moves": [{"pod": "red/train-0", "gpus": 2.0, "from": "one", "to": "two", "devices": [0]}],
    },
}
