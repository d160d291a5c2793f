"""Write rows of kubelets, notebooks and inference servers directly."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta

from fallow.tables import Batch
from simulator.exporters import inference, jupyter
from simulator.exporters.device_telemetry import get_skew_s
from simulator.exporters.quirks import Quirks
from simulator.models import HostSample


class HostRows:
    """Turns samples of hosts into `pod_sample` and `notebook_sample` rows.

    It remembers how many requests each pod has served, because rows have rates.
    """

    def __init__(self, cluster: str, interval_s: float, quirks: Quirks | None = None) -> None:
        """Take the time between scrapes, and the hosts whose clocks may be wrong (`clock-skew`)."""
        self._cluster, self._interval_s = cluster, interval_s
        self._quirks = quirks or Quirks.of()
        self._served: dict[str, tuple[datetime, float]] = {}

    def batches(
        self, samples: Sequence[HostSample], node_of: Mapping[str, str] | None = None
    ) -> Iterator[Batch]:
        """Yield the rows of one moment; `node_of` says by uid on which node a pod runs."""
        rates = [self._rate(sample) for sample in samples]
        running_uids = {sample.holder.uid for sample in samples}
        self._served = {
            uid: counters for uid, counters in self._served.items() if uid in running_uids
        }
        if samples:
            yield Batch.of(
                "pod_sample",
                {
                    **self._names(samples),
                    "interval_s": [self._interval_s] * len(samples),
                    "cpu_cores": [sample.cpu_cores for sample in samples],
                    "cpu_throttled_ratio": [sample.cpu_throttled for sample in samples],
                    "memory_bytes": [round(sample.memory_bytes) for sample in samples],
                    "net_rx_bps": [sample.network_rx_bytes_s for sample in samples],
                    "net_tx_bps": [sample.network_tx_bytes_s for sample in samples],
                    "requests_per_s": rates,
                },
            )
        notebooks = [sample for sample in samples if jupyter.is_serving(sample)]
        if notebooks:
            yield self._notebooks(notebooks, node_of or {})

    def _rate(self, sample: HostSample) -> float | None:
        if not inference.is_serving(sample) or sample.requests_total is None:
            return None
        before = self._served.get(sample.holder.uid)
        self._served[sample.holder.uid] = (sample.at, sample.requests_total)
        if before is None or sample.at <= before[0]:
            return None
        elapsed_s = (sample.at - before[0]).total_seconds()
        grown = sample.requests_total - before[1]
        # A counter that has decreased was reset.
        return (grown if grown >= 0 else sample.requests_total) / elapsed_s

    def _notebooks(self, samples: Sequence[HostSample], node_of: Mapping[str, str]) -> Batch:
        ahead = [
            timedelta(seconds=get_skew_s(self._quirks, node_of.get(sample.holder.uid, "")) or 0.0)
            for sample in samples
        ]
        kernels = [
            _convert_naive_utc(sample.at)
            if sample.kernel_busy
            else _convert_naive_utc(sample.kernel_last_activity, by)
            for sample, by in zip(samples, ahead, strict=True)
        ]
        shells = [
            _convert_naive_utc(sample.terminal_last_activity, by)
            for sample, by in zip(samples, ahead, strict=True)
        ]
        return Batch.of(
            "notebook_sample",
            {
                **self._names(samples),
                "kernels": [1] * len(samples),
                "busy_kernels": [int(bool(sample.kernel_busy)) for sample in samples],
                "last_kernel_activity": kernels,
                "terminals": [int(m is not None) for m in shells],
                "last_terminal_activity": shells,
                "connections": [int(bool(sample.kernel_busy)) for sample in samples],
            },
        )

    def _names(self, samples: Sequence[HostSample]) -> dict[str, object]:
        return {
            "cluster": [self._cluster] * len(samples),
            "ts": [_convert_naive_utc(sample.at) for sample in samples],
            "namespace": [sample.holder.namespace for sample in samples],
            "pod": [sample.holder.pod for sample in samples],
        }


def _convert_naive_utc(timestamp: datetime | None, by: timedelta = timedelta()) -> datetime | None:
    """Return a moment in UTC without its zone, as rows have it, moved by a clock's error."""
    return None if timestamp is None else (timestamp + by).astimezone(UTC).replace(tzinfo=None)
