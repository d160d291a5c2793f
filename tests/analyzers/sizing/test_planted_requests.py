"""Requests that a simulated cluster's people made too large are found, and no others."""

from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import numpy as np
import pytest

from analyzers.sizing.analyzer import SizingAnalyzer
from collectors.kube.owners import TopOwner
from collectors.kube.pods import PodContext, build_pod_row
from fallow.window import Window
from simulator.models import DeviceAllocation
from simulator.work.behaviours import Script, WorkPlan, build_script
from tests.kube.objects import as_pod
from tests.simulator.cluster.conftest import START_S, Small
from tests.simulator.exporters.container_rows import build_container_rows

BEGIN = datetime.fromtimestamp(START_S, UTC)
DAYS = 8
MIB = 2**20
MOMENTS = START_S + 3600 + 300.0 * np.arange((DAYS * 24 - 1) * 12, dtype=np.float64)
BEHAVIOURS = ("training", "serving", "day notebook", "input-bound training", "batch")
PLANTED = {"right": set[str](), "too much": {"cpu", "memory"}, "killed": {"cpu"}}
"""What people ask for, and what of it is to be lowered: a killed container keeps its memory."""


def need(ran: Script) -> dict[str, float]:
    """Return what a pod should ask for by its own truth: millicores, and MiB."""
    cores = ran.cpu_cores(MOMENTS).astype(np.float32)
    memory = (1500.0 + 0.5 * ran.memory_mib(MOMENTS, ran.plan.first_rank)) * MIB
    return {
        "cpu": float(np.ceil(np.quantile(cores, 0.95) * 100) * 10),
        "memory": float(np.ceil(memory.max() * 1.15 / MIB)),
    }


def asked(wanted: dict[str, float], plan: str) -> dict[str, str]:
    factor, cpu, memory = (1, 0, 0) if plan == "right" else (2, 500, 1024)
    return {
        "cpu": f"{wanted['cpu'] * factor + cpu:.0f}m",
        "memory": f"{wanted['memory'] * factor + memory:.0f}Mi",
    }


def deployment(name: str, requests: dict[str, str]) -> dict[str, Any]:
    gpu = {"nvidia.com/gpu": "1"}
    container = {
        "name": "main",
        "image": "x",
        "resources": {"requests": {**requests, **gpu}, "limits": gpu},
    }
    labels = {"app": name}
    return {
        "replicas": 1,
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
    }


def _always(top: TopOwner, _pod: Any) -> TopOwner:
    return top


@pytest.fixture
def planted(views: Any) -> dict[str, tuple[str, dict[str, float]]]:
    """Fill the warehouse with eight days of fifteen workloads; return each one's plan and need."""
    world = Small({"h100": 2})
    plans: dict[str, tuple[str, dict[str, float]]] = {}
    scripts: dict[str, Script] = {}
    for number, behaviour in enumerate(BEHAVIOURS):
        for plan in PLANTED:
            name = f"{behaviour}-{plan}".replace(" ", "-")
            scripts[name] = build_script(WorkPlan(behaviour, 11 + number), START_S)
            plans[name] = plan, need(scripts[name])
            world.make("Deployment", name, deployment(name, asked(plans[name][1], plan)))
    world.run(3000)
    for pod in world.pods("Running"):
        if plans[pod["metadata"]["labels"]["app"]][0] == "killed":
            world.cluster.finish(pod["metadata"]["uid"], world.now_s, ok=False, reason="OOMKilled")
    world.run(600)
    assert len(world.pods("Running")) == len(plans)
    end = BEGIN + timedelta(days=DAYS)
    by_uid = {p["metadata"]["uid"]: p["metadata"]["labels"]["app"] for p in world.pods()}
    allocations = [
        DeviceAllocation(t.holder, t.devices, t.start_s, MOMENTS[-1] + 1)
        for t in world.cluster.allocations
    ]
    of = {uid: scripts[name] for uid, name in by_uid.items()}
    views.put(*build_container_rows(allocations, of, MOMENTS, cluster="c"))
    for pod in world.pods():
        name = by_uid[pod["metadata"]["uid"]]
        top = TopOwner("Deployment", name, None)
        around = PodContext(cluster="c", now=lambda: end, resolve=partial(_always, top))
        row = build_pod_row(as_pod(pod), around)
        naive = {
            k: v.astimezone(UTC).replace(tzinfo=None) if isinstance(v, datetime) else v
            for k, v in row.items()
        }
        views.rows("pod", [naive | {"first_seen": BEGIN.replace(tzinfo=None)}])
        views.rows(
            "allocation",
            [
                {
                    "cluster": "c", "device": f"GPU-{name}", "pod_uid": row["uid"],
                    "namespace": "team-a", "pod": row["pod"], "workload_kind": "Deployment",
                    "workload": name, "share": 1.0, "attribution": "exact",
                    "start": BEGIN.replace(tzinfo=None), "end": end.replace(tzinfo=None),
                }
            ],
        )  # fmt: skip
    return plans


def test_planted_requests_are_found_and_killed_containers_keep_their_memory(
    views: Any, planted: dict[str, tuple[str, dict[str, float]]]
) -> None:
    end = BEGIN + timedelta(days=DAYS)
    found = {
        (f.subject.workload, f.kind.removesuffix("_request")): f.recommendations[0].parameters
        for f in SizingAnalyzer().find(views, Window(end - timedelta(days=1), end))
    }
    expected = {(name, part) for name, (plan, _) in planted.items() for part in PLANTED[plan]}
    assert set(found) == expected
    assert len(expected) == len(BEHAVIOURS) * 3
    for (name, part), answer in found.items():
        truth = planted[name][1][part] * (1 if part == "cpu" else MIB)
        assert answer["ask"] == pytest.approx(truth, rel=0.02, abs=10.1 if part == "cpu" else MIB)
