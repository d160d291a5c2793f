"""Turn what devices show into signals: XIDs, memory errors, heat, series that end."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta

import msgspec

from analyzers.reliability.incidents.records import Signal
from analyzers.reliability.incidents.rows import (
    CounterGrowth,
    GoneDevice,
    HotStretch,
    XidChange,
)
from analyzers.reliability.incidents.tables import get_xid_signal
from analyzers.workload_rows import Owner
from fallow.xids import get_xid_meaning

PodOwners = Mapping[tuple[str, str, str], Owner]
"""The owner of each pod: cluster, namespace, name."""
WORKLOADS = 2
"""Application XIDs under this many workloads within a day make the GPU suspect."""
DAY, HOUR = timedelta(days=1), timedelta(hours=1)
NEAR = timedelta(minutes=10)
GONE_AFTER = timedelta(minutes=5)
LEAST_PEERS = 4
"""With fewer devices the median is no reference for one device."""


def find_failed_holders(
    xids: Iterable[XidChange], ended: Iterable[Signal], owners: PodOwners
) -> list[XidChange]:
    """Return the XIDs; one that no pod holds is of the pod before it, if that one failed then.

    Without a failure the pod ended by itself: what its GPU shows afterwards is none of it. `ended`
    are the signals of processes.
    """
    times: dict[tuple[str, Owner, str], list[datetime]] = defaultdict(list)
    for signal in ended:
        if signal.name == "process_failed" and signal.owner is not None:
            times[signal.cluster, signal.owner, signal.pod].append(signal.at)

    def has_failed(xid: XidChange) -> bool:
        owner = owners.get((xid.cluster, xid.last_namespace, xid.last_pod))
        failures = times.get((xid.cluster, owner, xid.last_pod), ()) if owner else ()
        return any(abs(at - xid.at) <= NEAR for at in failures)

    return [
        msgspec.structs.replace(xid, namespace=xid.last_namespace, pod=xid.last_pod)
        if not xid.pod and has_failed(xid)
        else xid
        for xid in xids
    ]


def list_xid_signals(xids: Sequence[XidChange], owners: PodOwners) -> Iterator[Signal]:
    """Yield the signals of XIDs that appeared; those from before the window are none."""
    fresh = [x for x in xids if not x.older]
    suspects = _find_suspect_devices(fresh, owners)
    last_link: dict[tuple[str, str], XidChange] = {}
    for xid in sorted(fresh, key=lambda x: x.at):
        name = get_xid_signal(xid.code)
        if name is None:
            continue
        yield _build_xid(xid, name, owners)
        key = xid.cluster, xid.device
        if name == "xid_application" and key in suspects:
            crowd = _build_xid(xid, "xid_application_workloads", owners)
            yield msgspec.structs.replace(crowd, known_at=max(xid.at, suspects[key]))
        if name == "xid_nvlink":
            # A link has two ends, on one node.
            place = xid.cluster, xid.node
            before = last_link.get(place)
            if before is not None and xid.at - before.at <= HOUR:
                yield _build_xid(xid, "xid_nvlink_repeated", owners)
            last_link[place] = xid


def _find_suspect_devices(
    xids: Iterable[XidChange], owners: PodOwners
) -> dict[tuple[str, str], datetime]:
    """Return since when devices have application XIDs under different workloads within a day.

    A workload that has the same XID on several GPUs explains its own: it does not count.
    """
    devices_of: dict[tuple[Owner, int], set[str]] = defaultdict(set)
    theirs: dict[tuple[str, str], list[tuple[XidChange, Owner]]] = defaultdict(list)
    for xid in xids:
        owner = owners.get((xid.cluster, xid.namespace, xid.pod))
        if get_xid_signal(xid.code) == "xid_application" and owner is not None:
            devices_of[owner, xid.code].add(xid.device)
            theirs[xid.cluster, xid.device].append((xid, owner))
    suspects: dict[tuple[str, str], datetime] = {}
    for device, errors in theirs.items():
        unexplained = [(x, owner) for x, owner in errors if len(devices_of[owner, x.code]) == 1]
        for last, _ in unexplained:
            within = {o for x, o in unexplained if last.at - DAY < x.at <= last.at}
            if len(within) >= WORKLOADS:
                suspects[device] = min(suspects.get(device, last.at), last.at)
    return suspects


def _build_xid(xid: XidChange, name: str, owners: PodOwners) -> Signal:
    meaning = get_xid_meaning(xid.code).meaning
    return Signal(
        name, xid.at, xid.at, xid.at, xid.cluster,
        f"XID {xid.code}" + (f" ({meaning})" if meaning else ""), "sample",
        owners.get((xid.cluster, xid.namespace, xid.pod)), xid.node, xid.device, xid.pod,
    )  # fmt: skip


def list_counter_signals(growths: Iterable[CounterGrowth], owners: PodOwners) -> Iterator[Signal]:
    """Yield the signals of errors of memory and links."""
    texts = {
        "ecc_growth": "double-bit ECC errors rose",
        "remap_growth": "rows were remapped for uncorrectable errors",
        "remap_failed": "rows cannot be remapped any more",
        "remap_pending": "rows wait for a reset to be remapped",
        "nvlink_crc_growth": "NVLink CRC errors rose",
        "nvlink_replay_growth": "NVLink replays rose",
        "pcie_replay_growth": "PCIe replays rose",
    }
    for row in growths:
        for name, text in texts.items():
            if getattr(row, name):
                yield Signal(
                    name, row.at, row.at, row.at, row.cluster, text, "sample",
                    owners.get((row.cluster, row.namespace, row.pod)),
                    row.node, row.device, row.pod,
                )  # fmt: skip


def list_heat_signals(stretches: Iterable[HotStretch], ratio: float) -> Iterator[Signal]:
    """Yield the signals of devices that throttled; `ratio` of its peers' clock is slow."""
    for hot in stretches:
        detected_at = hot.start + timedelta(minutes=10)
        about = (hot.owner, hot.node, hot.device, hot.pod)
        text = f"throttled for {hot.seconds / 60:.0f} min"
        names = [("hot", hot.hot), ("power_braked", hot.braked)]
        for name in (name for name, throttled in names if throttled):
            yield Signal(name, hot.start, hot.end, detected_at, hot.cluster, text, "sample", *about)
        if hot.peers_mhz is None or hot.peers < LEAST_PEERS:
            continue
        slow = hot.clock_mhz < ratio * hot.peers_mhz
        text = f"{hot.clock_mhz:.0f} MHz, its peers {hot.peers_mhz:.0f} MHz"
        name = "slow_clock" if slow else "clocks_alike"
        yield Signal(name, hot.start, hot.end, detected_at, hot.cluster, text, "sample", *about)


def list_gone_signals(ended_devices: Iterable[GoneDevice], owners: PodOwners) -> Iterator[Signal]:
    """Yield the signals of devices whose series ended."""
    for row in ended_devices:
        yield Signal(
            "device_gone", row.at, row.at, row.at + GONE_AFTER, row.cluster,
            "its series ended while others of its node went on", "device",
            owners.get((row.cluster, row.namespace, row.pod)), row.node, row.device, row.pod,
        )  # fmt: skip
