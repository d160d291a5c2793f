"""Measure how much the ranks of jobs communicate: over the network, and over GPU links."""

from datetime import timedelta

import msgspec

from analyzers.rows import read_pod_use
from analyzers.topology.gangs import PlacedGang, convert_to_us
from analyzers.topology.rows import read_links
from fallow.protocols import Views
from fallow.window import Window

HOST_DAYS = 2
GIGA = 1e9


class RankTraffic(msgspec.Struct, frozen=True):
    """Bytes per second of a job; None = not measured."""

    net_bps: float | None = None
    """Per pod, over the network."""
    pcie_bps: float | None = None
    """Per device, over its links."""
    nvlink_bps: float | None = None

    @property
    def is_measured(self) -> bool:
        """Return whether any of the links is measured."""
        return any(value is not None for value in msgspec.structs.astuple(self))


def read_traffic(views: Views, window: Window, gangs: list[PlacedGang]) -> dict[int, RankTraffic]:
    """Return the traffic of each job, by its number.

    Network traffic is that of the last days.
    """
    traffic = {gang.number: RankTraffic() for gang in gangs}
    if not gangs:
        return traffic
    devices = [
        {
            "gang": gang.number, "cluster": row.cluster, "device": device,
            "since": convert_to_us(row.started_at), "until": convert_to_us(row.until),
        }
        for gang in gangs for row in gang.rows for device in row.devices
    ]  # fmt: skip
    for link in read_links(views, window, devices):
        traffic[link.gang] = RankTraffic(pcie_bps=link.pcie_bps, nvlink_bps=link.nvlink_bps)
    of_pod = {
        (row.cluster, row.namespace, pod): gang.number
        for gang in gangs for row in gang.rows for pod in row.pods
    }  # fmt: skip
    since = max(window.start, window.end - timedelta(days=HOST_DAYS))
    rates: dict[int, list[float]] = {}
    for use in read_pod_use(views, since, window.end, of_pod):
        if use.net_bps is not None:
            number = of_pod[use.cluster, use.namespace, use.pod]
            rates.setdefault(number, []).append(use.net_bps)
    for number, of_gang in rates.items():
        mean = sum(of_gang) / len(of_gang)
        traffic[number] = msgspec.structs.replace(traffic[number], net_bps=mean)
    return traffic
