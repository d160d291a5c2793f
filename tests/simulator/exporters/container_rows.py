"""Write `container_sample` rows directly: containers' use of their hosts over stretches of time.

The pods of this world have one container, which has the pod's whole use; `cadvisor.py` shows the
same figures over HTTP.
"""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from fallow.tables import Batch
from simulator.exporters.host_spans import compute_pod_use, convert_times, mark_running
from simulator.models import DeviceAllocation
from simulator.work.behaviours import Script
from simulator.work.chance import Array


def build_container_rows(
    allocations: Sequence[DeviceAllocation],
    scripts: Mapping[str, Script],
    timestamps: Array,
    *,
    cluster: str,
    every_s: float = 300.0,
) -> Iterator[Batch]:
    """Yield a row per pod's container and moment (epoch s, evenly apart) at which it runs."""
    for allocation in allocations:
        script, holder = scripts[allocation.holder.uid], allocation.holder
        now = timestamps[(timestamps >= allocation.start_s) & (timestamps < allocation.end_s)]
        now = now[mark_running(script, now)]
        if not len(now):
            continue
        cores, memory = compute_pod_use(script, now)
        yield Batch.of(
            "container_sample",
            {
                "cluster": [cluster] * len(now),
                "ts": convert_times(now),
                "namespace": [holder.namespace] * len(now),
                "pod": [holder.pod] * len(now),
                "container": [holder.container] * len(now),
                "interval_s": np.full(len(now), every_s),
                "cpu_cores": cores,
                "memory_bytes": memory,
            },
        )
