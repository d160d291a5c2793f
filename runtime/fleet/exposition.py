"""The fleet's exporters: what they would answer to scrapes, as exposition text with timestamps."""

from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from runtime.fleet.plan import Device, Fleet, Pod
from runtime.fleet.signals import Signals

WHOLE = frozenset(
    {
        "DCGM_FI_DEV_GPU_UTIL",
        "DCGM_FI_DEV_FB_USED",
        "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION",
        "DCGM_FI_PROF_PCIE_RX_BYTES",
    }
)
"""Fields that dcgm-exporter prints as whole numbers; the others have six decimals."""
NOT_UNDER_MIG = frozenset({"DCGM_FI_DEV_GPU_UTIL"})


def scrapes(fleet: Fleet, signals: Signals) -> Iterator[bytes]:
    """Yield one text per tick, the whole fleet's exporters one after the other, in time order.

    A silent exporter's lines are absent. The text of one scrape is a template that changes only
    when a pod starts or ends or an exporter falls silent.
    """
    n = len(signals.ticks)
    stacked = np.stack([signals.columns[name] for name in signals.columns])
    changed = (np.diff(signals.holder, axis=1) != 0) | np.diff(signals.silent, axis=1)
    edges = {0, n, *(int(t) + 1 for t in np.flatnonzero(changed.any(axis=0)))}
    cuts = sorted(edges)
    for begin, end in pairwise(cuts):
        heard = np.flatnonzero(~signals.silent[:, begin])
        template, wanted = _template(fleet, signals, begin, heard)
        # One row per tick, one column per line of the template.
        values = stacked[:, heard, begin:end].reshape(-1, end - begin).T[:, wanted]
        moments = (signals.ticks[begin:end] * 1000).astype(np.int64)
        for moment, row in zip(moments.tolist(), values.tolist(), strict=True):
            yield (template.replace("@", str(moment)) % tuple(row)).encode()


def _template(
    fleet: Fleet, signals: Signals, tick: int, heard: "np.ndarray[tuple[int], np.dtype[np.int64]]"
) -> tuple[str, list[int]]:
    lines: list[str] = []
    wanted: list[int] = []
    position = 0
    for name in signals.columns:
        form = "%d" if name in WHOLE else "%.6f"
        for row in heard.tolist():
            device = fleet.devices[row]
            if not (device.instance is not None and name in NOT_UNDER_MIG):
                number = int(signals.holder[row, tick])
                pod = fleet.pods[number] if number >= 0 else None
                lines.append(f"{name}{{{_labels(device, pod)}}} {form} @\n")
                wanted.append(position)
            position += 1
    return "".join(lines), wanted


def _labels(device: Device, pod: Pod | None) -> str:
    """Return the labels in dcgm-exporter's own order (domain.md section 1.1)."""
    labels = {
        "gpu": str(device.index),
        "UUID": device.uuid,
        "device": f"nvidia{device.index}",
        "modelName": device.model.name,
    }
    if device.instance is not None:
        labels |= {"GPU_I_PROFILE": device.profile or "", "GPU_I_ID": str(device.instance)}
    labels["Hostname"] = device.node
    if pod is not None:
        labels |= {"container": "main", "namespace": pod.namespace, "pod": pod.name}
    return ",".join(f'{name}="{value}"' for name, value in labels.items())
