"""Two VFs without an identity."""

from tests.field.site import STEP, ago
from tests.field.situation import Situation

SERIES = "Aqua Vanjaram [Instinct MI300X VF]"
VALUES = {
    "amd_gpu_gfx_activity": 93.0,
    "amd_gpu_average_package_power": 600.0,
    "amd_gpu_used_vram": 90000.0,
}


def _list(host: str) -> list[str]:
    text = (
        f'gpu_id="0",hostname="{host}",card_model="",card_series="{SERIES}",'
        'gpu_uuid="00000000-0000-0000-0000-000000000000",serial_number="",pod="",namespace=""'
    )
    return [
        f"{name}{{{text}}} {value + k % 3} {int((ago(6) + STEP * k).timestamp() * 1000)}"
        for name, value in VALUES.items()
        for k in range(72)
    ]


SITUATION = Situation(
    kind="H",
    lines=[*_list("vm-1"), *_list("vm-2")],
    hours={"node": {"vm-1": 6.0, "vm-2": 6.0}},
    long=False,
)
