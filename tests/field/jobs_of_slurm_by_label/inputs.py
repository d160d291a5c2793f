"""One GPU of one job, one of two, one free; no Kubernetes."""

from tests.field.site import FREE, list_lines
from tests.field.situation import Situation

SITUATION = Situation(
    kind="F",
    lines=[
        *list_lines("GPU-0", "slurm-1", hpc_job="4711"),
        *list_lines("GPU-1", "slurm-1", gpu=1, hpc_job="4712"),
        *list_lines("GPU-1", "slurm-1", gpu=1, hpc_job="4713"),
        *list_lines("GPU-2", "slurm-1", gpu=2, values=FREE),
    ],
    hours={"state": {"productive": 12.0, "free": 6.0}, "node": {"slurm-1": 18.0}},
    answers={
        "select cluster, count(distinct device) as n from sample group by cluster": [{"n": 3}]
    },
)
