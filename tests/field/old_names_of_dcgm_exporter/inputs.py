"""Two GPUs under the old names."""

from tests.field.site import BUSY, list_lines
from tests.field.situation import Situation

NAMES = {
    "DCGM_FI_DEV_GPU_UTIL": "dcgm_gpu_utilization",
    "DCGM_FI_DEV_POWER_USAGE": "dcgm_power_usage",
    "DCGM_FI_DEV_FB_USED": "dcgm_fb_used",
    "DCGM_FI_DEV_FB_FREE": "dcgm_fb_free",
}
VALUES = {name: BUSY[name] for name in NAMES}


def _rename(line: str) -> str:
    name, rest = line.split("{", 1)
    return f"{NAMES[name]}{{{rest}\n"


SITUATION = Situation(
    kind="F",
    texts=["".join(_rename(line) for line in list_lines("GPU-0", "a", values=VALUES)).encode()],
    texts_refused="holds no GPU metric that Fallow knows",
)
