"""One GPU by another exporter."""

from tests.field.site import STEP, ago
from tests.field.situation import Situation

VALUES = {"nvidia_smi_utilization_gpu_ratio": 0.97, "nvidia_smi_power_draw_watts": 290.0}

SITUATION = Situation(
    kind="F",
    texts=[
        "".join(
            f'{name}{{uuid="7bdeeff7-f7c6-e13c-f368-227523e670a7"}} {value}'
            f" {int((ago(1) + STEP * k).timestamp() * 1000)}\n"
            for name, value in VALUES.items()
            for k in range(12)
        ).encode()
    ],
    texts_refused="holds no GPU metric that Fallow knows",
)
