"""What kubelets, notebooks and inference servers say, straight to rows (closed doors)."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta

from fallow.tables import Batch
from simulator.exporters import inference, jupyter
from simulator.exporters.quirks import Quirks
from simulator.exporters.shown import skew_s
from simulator.nouns import HostLook


class HostRows:
    """Turns looks at hosts into `pod_sample` and `notebook_sample` rows.

    Remembers how many requests each pod had served, because rows hold rates.
    """

    def __init__(self, cluster: str, interval_s: float, quirks: Quirks | None = None) -> None:
        """Say how far apart looks are, and whose clocks may be wrong (`clock-skew`)."""
        self._cluster, self._interval_s = cluster, interval_s
        self._quirks = quirks or Quirks.of()
        self._served: dict[str, tuple[datetime, float]] = {}

    def batches(
        self, looks: Sequence[HostLook], node_of: Mapping[str, str] | None = None
    ) -> Iterator[Batch]:
        """Yield the rows of one moment; `node_of` says by uid on which node a pod runs."""
        rates = [self._rate(look) for look in looks]
        here = {look.holder.uid for look in looks}
        self._served = {uid: said for uid, said in self._served.items() if uid in here}
        if looks:
            yield Batch.of(
                "pod_sample",
                {
                    **self._names(looks),
                    "interval_s": [self._interval_s] * len(looks),
                    "cpu_cores": [look.cpu_cores for look in looks],
                    "memory_bytes": [round(look.memory_bytes) for look in looks],
                    "net_rx_bps": [look.network_rx_bytes_s for look in looks],
                    "net_tx_bps": [look.network_tx_bytes_s for look in looks],
                    "requests_per_s": rates,
                },
            )
        notebooks = [look for look in looks if jupyter.serves(look)]
        if notebooks:
            yield self._notebooks(notebooks, node_of or {})

    def _rate(self, look: HostLook) -> float | None:
        if not inference.serves(look) or look.requests_total is None:
            return None
        before = self._served.get(look.holder.uid)
        self._served[look.holder.uid] = (look.at, look.requests_total)
        if before is None or look.at <= before[0]:
            return None
        passed = (look.at - before[0]).total_seconds()
        grown = look.requests_total - before[1]
        # A counter that has fallen began again.
        return (grown if grown >= 0 else look.requests_total) / passed

    def _notebooks(self, looks: Sequence[HostLook], node_of: Mapping[str, str]) -> Batch:
        ahead = [
            timedelta(seconds=skew_s(self._quirks, node_of.get(look.holder.uid, "")) or 0.0)
            for look in looks
        ]
        kernels = [
            _naive(look.at) if look.kernel_busy else _naive(look.kernel_last_activity, by)
            for look, by in zip(looks, ahead, strict=True)
        ]
        shells = [
            _naive(look.terminal_last_activity, by) for look, by in zip(looks, ahead, strict=True)
        ]
        return Batch.of(
            "notebook_sample",
            {
                **self._names(looks),
                "kernels": [1] * len(looks),
                "busy_kernels": [int(bool(look.kernel_busy)) for look in looks],
                "last_kernel_activity": kernels,
                "terminals": [int(m is not None) for m in shells],
                "last_terminal_activity": shells,
                "connections": [int(bool(look.kernel_busy)) for look in looks],
            },
        )

    def _names(self, looks: Sequence[HostLook]) -> dict[str, object]:
        return {
            "cluster": [self._cluster] * len(looks),
            "ts": [_naive(look.at) for look in looks],
            "namespace": [look.holder.namespace for look in looks],
            "pod": [look.holder.pod for look in looks],
        }


def _naive(moment: datetime | None, by: timedelta = timedelta()) -> datetime | None:
    """Return a moment in UTC without its zone, as rows have it, moved by a clock's error."""
    return None if moment is None else (moment + by).astimezone(UTC).replace(tzinfo=None)
