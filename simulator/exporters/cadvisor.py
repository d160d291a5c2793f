"""Write the kubelet's `/metrics/cadvisor` per node: counters that grow with the hosts' samples."""

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from simulator.exporters.dcgm import quote_labels
from simulator.models import HostSample

_FAMILIES = (
    ("container_cpu_usage_seconds_total", "counter", "Cumulative cpu time consumed in seconds."),
    ("container_memory_working_set_bytes", "gauge", "Current working set in bytes."),
    (
        "container_cpu_cfs_periods_total",
        "counter",
        "Number of elapsed enforcement period intervals.",
    ),
    (
        "container_cpu_cfs_throttled_periods_total",
        "counter",
        "Number of throttled period intervals.",
    ),
    ("container_network_receive_bytes_total", "counter", "Cumulative count of bytes received"),
    ("container_network_transmit_bytes_total", "counter", "Cumulative count of bytes transmitted"),
)


PERIODS_PER_S = 10.0
"""A period of the Linux scheduler's CPU bandwidth control (CFS) is 100 ms."""


class _Counted(msgspec.Struct):
    at_s: float
    cpu_s: float = 0.0
    periods: float = 0.0
    throttled: float = 0.0
    received: float = 0.0
    sent: float = 0.0


class Counters:
    """Adds up rates between samples; a pod's counters begin at its first sample.

    Lines have no timestamp, although the kubelet's do: a world's clock may be ahead of the
    scraper's.
    """

    def __init__(self) -> None:
        self._counted: dict[str, _Counted] = {}

    def advance(self, samples: Iterable[HostSample]) -> None:
        """Add the samples of one time; pods without a sample are removed."""
        counted: dict[str, _Counted] = {}
        for sample in samples:
            at_s = sample.at.timestamp()
            count = self._counted.get(sample.holder.uid) or _Counted(at_s)
            elapsed_s = max(at_s - count.at_s, 0.0)
            count.cpu_s += elapsed_s * sample.cpu_cores
            count.periods += elapsed_s * PERIODS_PER_S
            count.throttled += elapsed_s * PERIODS_PER_S * sample.cpu_throttled
            count.received += elapsed_s * sample.network_rx_bytes_s
            count.sent += elapsed_s * sample.network_tx_bytes_s
            count.at_s = at_s
            counted[sample.holder.uid] = count
        self._counted = counted

    def text(self, samples: Sequence[HostSample], node_of: Mapping[str, str], node: str) -> bytes:
        """Return one node's text; `node_of` says by uid which node a pod runs on."""
        node_samples = [sample for sample in samples if node_of.get(sample.holder.uid) == node]
        values: dict[str, list[str]] = {name: [] for name, _, _ in _FAMILIES}
        for sample in node_samples:
            holder, count = sample.holder, self._counted.get(sample.holder.uid)
            if count is None:
                continue
            slice_ = f"/kubepods.slice/kubepods-pod{holder.uid.replace('-', '_')}.slice"
            pod = {"namespace": holder.namespace, "pod": holder.pod}
            for container in ("", holder.container):
                scope = f"{slice_}/cri-containerd-{container}.scope" if container else slice_
                key = {"container": container, "id": scope, **pod}
                values[_FAMILIES[0][0]].append(f"{{{quote_labels(key)}}} {count.cpu_s:.6f}\n")
                values[_FAMILIES[1][0]].append(
                    f"{{{quote_labels(key)}}} {sample.memory_bytes:.0f}\n"
                )
                for family, periods in ((2, count.periods), (3, count.throttled)):
                    line = f"{{{quote_labels(key)}}} {periods:.0f}\n"
                    values[_FAMILIES[family][0]].append(line)
            wire = {"container": "", "id": slice_, "interface": "eth0", **pod}
            values[_FAMILIES[4][0]].append(f"{{{quote_labels(wire)}}} {count.received:.0f}\n")
            values[_FAMILIES[5][0]].append(f"{{{quote_labels(wire)}}} {count.sent:.0f}\n")
        parts = []
        for name, kind, help_text in _FAMILIES:
            parts += [f"# HELP {name} {help_text}\n# TYPE {name} {kind}\n"]
            parts += [f"{name}{line}" for line in values[name]]
        return "".join(parts).encode()
