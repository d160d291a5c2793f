"""An H100 whose profiling fields are blank."""

from tests.field.site import list_lines
from tests.field.situation import Situation

VALUES = {
    "DCGM_FI_DEV_GPU_UTIL": 96.0,
    "DCGM_FI_DEV_POWER_USAGE": 569.0,
    "DCGM_FI_PROF_SM_ACTIVE": 140737488355328.0,
    "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": 140737488355328.0,
    "DCGM_FI_PROF_PCIE_TX_BYTES": 9223372036854775792,
}
COUNTS = (
    "select cluster, count(power_w) as power, count(gpu_util_pct) as util,"
    " count(sm_active) as sm, count(tensor_active) as tensor from sample group by cluster"
)

SITUATION = Situation(
    kind="G",
    lines=list_lines("GPU-0", "a", values=VALUES),
    answers={COUNTS: [{"power": 72, "util": 72, "sm": 0, "tensor": 0}]},
)
