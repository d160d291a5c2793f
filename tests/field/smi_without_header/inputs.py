"""Rows without names."""

from tests.field.situation import Situation, Table

ROW = "2026/11/27 20:23:46.283, GPU-0, 97, 40536, [N/A]"

SITUATION = Situation(
    kind="I",
    tables=[
        Table(
            f"{ROW}\n{ROW}\n",
            "workload=uuid,device=uuid,ts=timestamp,gpu_util_pct=utilization.gpu [%]",
            refused="uuid",
        )
    ],
)
