"""Hours whose jobs also tell their pace."""

import json
from datetime import timedelta
from typing import Any

from tests.analyzers.hourly import HOURS, NAIVE, Hours


class Stepped(Hours):
    """Jobs that train, and say how fast."""

    def job(
        self,
        name: str,
        gpus: int,
        work: float | None = None,
        *,
        steps: float | None = None,
        per_rank: float | None = None,
        hours: tuple[int, int] = (0, HOURS),
        told: int | None = None,
        family: str | None = None,
        kind: str = "PyTorchJob",
        model: str = "H100",
        gpus_per_pod: int = 8,
        unit: str = "trainer_throughput_tokens_per_sec",
        **more: Any,
    ) -> None:
        """Let a job run on so many GPUs; `work` is the job's, `per_rank` each pod's, each hour."""
        noted = {"annotations": json.dumps({"fallow.dev/family": family})} if family else {}
        pods = -(-gpus // gpus_per_pod)
        per = min(gpus, gpus_per_pod)
        self.workload(
            name, [{}] * gpus, kind=kind, model=model, gpus_per_pod=per, hours=hours,
            pod={"last_seen": NAIVE, **noted},
        )  # fmt: skip
        tells = pods if told is None else told
        self.views.rows(
            "step_sample",
            [
                {
                    "cluster": "c", "ts": NAIVE + timedelta(hours=hour, minutes=5 * part),
                    "namespace": "ns", "pod": f"{name}-{n}", "interval_s": 300.0,
                    "work": unit if work or per_rank else None,
                    "job_work_per_s": work if n == 0 else None, "work_per_s": per_rank,
                    "steps_per_s": steps, **more,
                }
                for hour in range(*hours)
                for part in range(12)
                for n in range(tells)
            ],
        )  # fmt: skip
