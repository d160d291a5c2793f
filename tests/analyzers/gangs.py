"""Gangs whose ranks work, spin or rest, sample by sample, up to one end."""

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from fallow.window import Window

END = datetime(2026, 11, 20, 8, 0, tzinfo=UTC)
NAIVE = END.replace(tzinfo=None)
SHOWN: Mapping[str, Mapping[str, float | None]] = {
    "work": {
        "gr_engine_active": 0.9, "gpu_util_pct": 95.0, "sm_active": 0.7, "tensor_active": 0.3,
        "dram_active": 0.4, "pcie_tx_bps": 2e8, "pcie_rx_bps": 3e8, "power_w": 600.0,
    },
    "spin": {
        "gr_engine_active": 1.0, "gpu_util_pct": 100.0, "sm_active": 0.05, "tensor_active": 0.0,
        "dram_active": 0.0, "pcie_tx_bps": 2e5, "pcie_rx_bps": 2e5, "power_w": 180.0,
    },
    "rest": {
        "gr_engine_active": 0.0, "gpu_util_pct": 0.0, "sm_active": 0.0, "tensor_active": 0.0,
        "dram_active": 0.0, "pcie_tx_bps": 0.0, "pcie_rx_bps": 0.0, "power_w": 110.0,
    },
}  # fmt: skip
Pieces = Sequence[tuple[str, float]]


class Gangs:
    """A cluster of jobs; every series ends at END."""

    def __init__(self, views: Any) -> None:
        self.views = views
        self.window = Window(END - timedelta(hours=6), END)
        self._made = 0

    def job(
        self,
        name: str,
        *ranks: Pieces,
        kind: str = "PyTorchJob",
        every: float = 60.0,
        shown: Mapping[str, Mapping[str, float | None]] | None = None,
        unseen: int = 0,
        pending: int = 0,
        annotations: Mapping[str, str] | None = None,
        usd: float | None = None,
    ) -> None:
        """Let each rank (a pod of one device) do its pieces: what, and for how many minutes.

        `shown` changes what a piece's samples show; `unseen` ranks have no telemetry, `pending`
        ones have no node yet.
        """
        pods = []
        for n, pieces in enumerate(ranks):
            self._made += 1
            self._device(f"GPU-{self._made}", name, n, pieces, every, shown or {})
        for n in range(len(ranks) + unseen + pending):
            waits = n >= len(ranks) + unseen
            pods.append(
                {
                    "cluster": "c", "uid": f"uid-{name}-{n}", "namespace": "ns",
                    "pod": f"{name}-{n}", "node": None if waits else f"{name}-n{n}",
                    "phase": "Pending" if waits else "Running", "workload_kind": kind,
                    "workload": name, "team": "team-a", "gpu_request": 1.0,
                    "created_at": NAIVE - timedelta(days=1), "last_seen": NAIVE,
                    "started_at": None if waits else NAIVE - timedelta(days=1),
                    "annotations": json.dumps(annotations) if annotations else None,
                }
            )  # fmt: skip
        self.views.rows("pod", pods)
        if usd is not None:
            self._bill(name, kind, len(ranks), usd)

    def progress(
        self,
        name: str,
        *pieces: tuple[float, float],
        metric: str = "train_global_step",
        rank: int = 0,
        every: float = 60.0,
        late: float = 0.0,
    ) -> None:
        """Let a rank say its progress: so many minutes at so many steps a minute, up to END.

        `late`: minutes before END at which it falls silent.
        """
        rates = [rate for minutes, rate in pieces for _ in range(round(minutes * 60 / every))]
        value, rows = 1000.0, []
        for n, rate in enumerate(rates):
            value += rate * every / 60
            at = NAIVE - timedelta(seconds=(len(rates) - n) * every)
            if at < NAIVE - timedelta(minutes=late):
                rows.append(
                    {
                        "cluster": "c", "ts": at, "namespace": "ns", "pod": f"{name}-{rank}",
                        "metric": metric, "interval_s": every, "value": value,
                    }
                )  # fmt: skip
        self.views.rows("progress_sample", rows)

    def host(self, name: str, rank: int, *pieces: tuple[float, Mapping[str, float]]) -> None:
        """Let a rank's kubelet say what its pod does, by stretches of five minutes up to END."""
        quiet = {
            "cpu_cores": 0.02, "net_rx_bps": 60.0, "net_tx_bps": 40.0, "fs_read_bps": 0.0,
            "fs_write_bps": 0.0,
        }  # fmt: skip
        shown = [{**quiet, **what} for minutes, what in pieces for _ in range(round(minutes / 5))]
        self.views.rows(
            "pod_sample",
            [
                {
                    "cluster": "c", "ts": NAIVE - timedelta(minutes=5 * (len(shown) - n)),
                    "namespace": "ns", "pod": f"{name}-{rank}", "interval_s": 300.0, **what,
                }
                for n, what in enumerate(shown)
            ],
        )  # fmt: skip

    def _device(  # noqa: PLR0917  (one caller)
        self,
        device: str,
        name: str,
        rank: int,
        pieces: Pieces,
        every: float,
        shown: Mapping[str, Mapping[str, float | None]],
    ) -> None:
        samples = [{**SHOWN.get(what, {}), **shown.get(what, {})} for what, minutes in pieces
                 for _ in range(round(minutes * 60 / every))]  # fmt: skip
        self.views.rows(
            "sample",
            [
                {
                    "cluster": "c", "ts": NAIVE - timedelta(seconds=(len(samples) - n) * every),
                    "device": device, "node": f"{name}-n{rank}", "model": "NVIDIA H100 80GB HBM3",
                    "namespace": "ns", "pod": f"{name}-{rank}", "interval_s": every, **sample,
                }
                for n, sample in enumerate(samples)
            ],
        )  # fmt: skip
        self.views.rows(
            "device",
            [
                {
                    "cluster": "c", "device": device, "node": f"{name}-n{rank}",
                    "model": "NVIDIA H100 80GB HBM3", "gpu_model": "H100", "weight": 1.0,
                    "interval_s": every, "first_seen": NAIVE - timedelta(hours=6),
                    "last_seen": NAIVE,
                }
            ],
        )  # fmt: skip

    def _bill(self, name: str, kind: str, gpus: int, usd: float) -> None:
        """Let each device cost so many dollars an hour, in the last six hours."""
        self.views.rows(
            "ledger",
            [
                {
                    "cluster": "c", "bucket": NAIVE - timedelta(hours=h), "device": f"{name}-{n}",
                    "state": "productive", "namespace": "ns", "workload_kind": kind,
                    "workload": name, "gpu_seconds": 3600.0, "usd": usd, "priced": True,
                }
                for h in range(1, 7)
                for n in range(gpus)
            ],
        )  # fmt: skip
