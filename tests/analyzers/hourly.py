"""A small fleet by the hour: rollups, who holds what, what hosts say, and the ledger of it."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from fallow.window import Window

START = datetime(2026, 11, 1, tzinfo=UTC)
NAIVE = START.replace(tzinfo=None)
HOURS = 48
GIB = 2**30
MODELS = {
    "H100": ("NVIDIA H100 80GB HBM3", 80, "6.88"),
    "H200": ("NVIDIA H200", 141, "10.60"),
    "A100-80GB": ("NVIDIA A100-SXM4-80GB", 80, "3.43"),
    "L4": ("NVIDIA L4", 24, "0.80"),
    "T4": ("Tesla T4", 16, "0.53"),
    "K80": ("Tesla K80", 12, "0.30"),
}
BUSY = {
    "act": 0.9, "gr_engine_active": 0.9, "sm_active": 0.7, "tensor_active": 0.3,
    "dram_active": 0.3, "power_w": 500.0, "mem_used_gib": 60.0, "pcie_bps_max": 1e8,
    "sm_clock_mhz": 1800.0,
}  # fmt: skip


class Hours:
    """Devices of one cluster that show the same every hour, held by pods of workloads."""

    def __init__(self, views: Any) -> None:
        self.views = views
        self.window = Window(START, START + timedelta(hours=HOURS))
        self.made = 0

    def workload(
        self,
        name: str,
        ranks: Sequence[Mapping[str, Any]] = ({},),
        *,
        kind: str = "PyTorchJob",
        model: str = "H100",
        hours: tuple[int, int] = (0, HOURS),
        gpus_per_pod: int = 0,
        nodes: Sequence[str] = ("n0",),
        named: bool = True,
        priced: bool = True,
        profile: str | None = None,
        weight: float = 1.0,
        pod: Mapping[str, Any] | None = None,
        host: Mapping[str, Any] | None = None,
        sharers: int | None = None,
    ) -> None:
        """Let a workload of some ranks run; each shows `BUSY` but for what it says itself.

        A rank's `before` is what it shows in its first hour.
        """
        answer, gib, usd = MODELS[model]
        per = gpus_per_pod or len(ranks)
        rollups: list[dict[str, Any]] = []
        ledger: list[dict[str, Any]] = []
        for n, rank in enumerate(ranks):
            device = f"GPU-{self.made + n:04d}"
            parent = f"GPU-board-{self.made + n}" if profile else None
            node, pod_name = nodes[n * len(nodes) // len(ranks)], f"{name}-{n // per}"
            facts = {
                "cluster": "c", "device": device, "parent": parent, "node": node,
                "profile": profile, "model": answer,
            }  # fmt: skip
            seen = {"weight": weight, "memory_bytes": int(gib * GIB * weight), "gpu_model": model}
            self.views.rows("device", [facts | seen])
            self.views.rows("allocation", [self._held(name, kind, pod_name, device, hours)])
            for hour in range(*hours):
                shown = {**BUSY, **rank}
                before = shown.pop("before", {})
                shown |= before if hour == hours[0] else {}
                row = _hour(hour, shown)
                rollups.append(
                    {
                        **{k: v for k, v in facts.items() if k != "gpu_model"},
                        "namespace": "ns" if named else "",
                        "pod": pod_name if named else "",
                        "sharers": sharers,
                        **row,
                    }
                )
                state = "idle" if row["idle_s"] else "low" if row["low_s"] else "productive"
                ledger.append(
                    {
                        "cluster": "c", "bucket": row["bucket"], "device": device, "state": state,
                        "namespace": "ns", "workload_kind": kind, "workload": name, "node": node,
                        "pool": "p", "model": model, "seconds": 3600.0,
                        "gpu_seconds": 3600.0 * weight, "priced": priced,
                        "usd": Decimal(f"{float(usd) * weight:.6f}") if priced else None,
                    }
                )  # fmt: skip
        self.made += len(ranks)
        self.views.rows("rollup_1h", rollups)
        self.views.rows("ledger", ledger)
        for n in range(-(-len(ranks) // per)):
            node = nodes[n * per * len(nodes) // len(ranks)]
            self._pod(name, n, {"workload_kind": kind, "node": node, **(pod or {})}, per)
            if host is not None:
                self._host(f"{name}-{n}", host)

    def node(self, name: str, *, free_gpus: float = 0, **more: Any) -> None:
        """Put a node of 8 H100; so many of its GPUs are free all the time."""
        row = {
            "cluster": "c", "node": name, "pool": "p", "gpu_count": 8, "cpu_milli": 192_000,
            "memory_bytes": 2048 * GIB, "gpu_model": "NVIDIA-H100-80GB-HBM3", "sharing": "none",
            "ready": True, "labels": "{}",
        }  # fmt: skip
        self.views.rows("node", [row | more])
        if free_gpus:
            self.views.rows(
                "ledger",
                [
                    {
                        "cluster": "c", "bucket": NAIVE + timedelta(hours=hour), "state": "free",
                        "device": f"{name}-rest", "namespace": "", "workload_kind": "",
                        "workload": "", "node": name, "pool": "p", "model": "H100",
                        "gpu_seconds": 3600.0 * free_gpus, "priced": True,
                        "usd": Decimal("6.88") * Decimal(repr(free_gpus)),
                    }
                    for hour in range(HOURS)
                ],
            )  # fmt: skip

    def room(self, node: str, gpus: int, model: str = "H100", **more: Any) -> None:
        """Put a node and so many GPUs of it that nobody holds."""
        devices = [
            {
                "cluster": "c", "device": f"GPU-{node}-{n}", "node": node, "gpu_model": model,
                "model": MODELS[model][0], "weight": 1.0,
            }
            for n in range(gpus)
        ]  # fmt: skip
        if devices:
            self.views.rows("device", devices)
        self.node(node, **more)

    def offers(self, model: str) -> None:
        """Let the site have one free GPU of a model, so that it has a price there."""
        usd = Decimal(MODELS[model][2])
        self.views.rows(
            "ledger",
            [
                {
                    "cluster": "c", "bucket": NAIVE, "state": "free", "device": f"spare-{model}",
                    "namespace": "", "workload_kind": "", "workload": "", "node": f"of-{model}",
                    "model": model, "gpu_seconds": 3600.0, "priced": True, "usd": usd,
                }
            ],
        )  # fmt: skip

    def _held(
        self, name: str, kind: str, pod: str, device: str, hours: tuple[int, int]
    ) -> dict[str, Any]:
        return {
            "cluster": "c", "device": device, "pod_uid": f"uid-{pod}", "namespace": "ns",
            "pod": pod, "workload_kind": kind, "workload": name, "team": "team-a", "share": 1.0,
            "attribution": "exact", "start": NAIVE + timedelta(hours=hours[0]),
            "end": NAIVE + timedelta(hours=hours[1]),
        }  # fmt: skip

    def _pod(self, name: str, n: int, more: Mapping[str, Any], gpus: int) -> None:
        row = {
            "cluster": "c", "uid": f"uid-{name}-{n}", "namespace": "ns", "pod": f"{name}-{n}",
            "phase": "Running", "workload": name, "gpu_request": float(gpus),
            "cpu_request_milli": 16_000 * gpus, "cpu_limit_milli": 16_000 * gpus,
            "memory_request_bytes": 128 * GIB * gpus,
        }  # fmt: skip
        self.views.rows("pod", [row | dict(more)])

    def _host(self, pod: str, said: Mapping[str, Any]) -> None:
        first = {"cluster": "c", "namespace": "ns", "pod": pod, "interval_s": 600.0}
        rows = [
            {**first, "ts": NAIVE + n * timedelta(minutes=10), **said} for n in range(6 * HOURS)
        ]
        self.views.rows("pod_sample", rows)


def _hour(hour: int, shown: Mapping[str, Any]) -> dict[str, Any]:
    """Return the columns of one hour of one device; None is never measured."""
    act = shown["act"]
    state = "idle_s" if act <= 0.05 else "low_s" if act < 0.3 else "busy_s"
    row = {
        "cluster": "c", "bucket": NAIVE + timedelta(hours=hour), "n": 60, "act_n": 60,
        "covered_s": 3600.0, "idle_s": 0.0, "low_s": 0.0, "busy_s": 0.0, "conflict_s": 0.0,
        "act_mean": act, "act_max": act, "act_min": act,
    }  # fmt: skip
    row[state] = 3600.0
    for name, value in shown.items():
        if name == "mem_used_gib":
            if value is not None:
                used = int(value * GIB)
                row |= {
                    "mem_used_bytes_max": used,
                    "mem_used_bytes_min": int(shown.get("mem_least_gib", 0.5 * value) * GIB),
                }
        elif name in {"pcie_bps_max", "nvlink_bps_max"}:
            row[name] = value
        elif name not in {"act", "mem_least_gib"} and value is not None:
            row |= {f"{name}_mean": value}
    return row
