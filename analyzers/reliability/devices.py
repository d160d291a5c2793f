"""Find sick devices, by their XIDs, their memory and the failures of pods on them.

An XID of an application (13, 31, 43, 94 ...) alone is no evidence against a node. A GPU is
suspected only where different workloads have the XID on it within a day. If one pod has it on
several GPUs, the application is the cause.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Literal

import msgspec

from analyzers.reliability.rows import DeviceXid, MemorySign
from fallow.xids import get_xid_meaning

Key = tuple[str, str]
DAY, HOUR = timedelta(days=1), timedelta(hours=1)
MOST_REBOOTS = 2
"""After this many resets for the same XID the hardware is inspected instead (gpud's rule)."""
REPLACE = "replace the GPU: its memory rows cannot be remapped any more"
DIAGNOSE = "run the vendor's diagnosis on this GPU when it is free"
INSPECT = "inspect the hardware: resets did not cure it"


class SickDevice(msgspec.Struct, frozen=True):
    """A device that should not get work, the reasons, and the remedy."""

    device: str
    node: str
    level: Literal["sick", "suspect"]
    action: str
    signs: tuple[str, ...]
    signals: tuple[str, ...]
    """Independent signals: the driver, the memory, the pods, the node."""


def find_sick(
    xids: Sequence[DeviceXid],
    health: Iterable[MemorySign],
    struck: Mapping[Key, Sequence[datetime]],
    downs: Mapping[Key, Sequence[datetime]],
    repeats: int,
) -> dict[Key, list[SickDevice]]:
    """Return the sick devices of each node.

    `struck` are the times at which pods failed on a node, `downs` at which it was not ready.
    """
    by_device: dict[Key, list[DeviceXid]] = defaultdict(list)
    for xid in xids:
        by_device[xid.cluster, xid.device].append(xid)
    memory: dict[Key, dict[str, tuple[int, int]]] = defaultdict(dict)
    node_of: dict[Key, str] = {key: seen[-1].node for key, seen in by_device.items()}
    for counter in health:
        key = counter.cluster, counter.device
        memory[key][counter.sign] = counter.most, counter.growth
        node_of.setdefault(key, counter.node or "")
    theirs = find_application_errors(xids)
    by_place: dict[Key, list[SickDevice]] = defaultdict(list)
    for key, name in sorted(node_of.items()):
        place = key[0], name
        sick = _judge_device(
            key, name, by_device.get(key, []), memory.get(key, {}), theirs, repeats,
            struck.get(place, ()), downs.get(place, ()),
        )  # fmt: skip
        if sick is not None:
            by_place[place].append(sick)
    return by_place


def find_application_errors(xids: Iterable[DeviceXid]) -> set[tuple[str, str, str, int]]:
    """Return the pods (cluster, namespace, pod, code) with an XID on several GPUs."""
    where: dict[tuple[str, str, str, int], set[str]] = defaultdict(set)
    for xid in xids:
        if xid.pod and get_xid_meaning(xid.code).class_ in {"application", "log"}:
            where[xid.cluster, xid.namespace, xid.pod, xid.code].add(xid.device)
    return {key for key, devices in where.items() if len(devices) > 1}


def _judge_device(  # noqa: PLR0917  (one caller)
    key: Key,
    node: str,
    seen: Sequence[DeviceXid],
    memory: Mapping[str, tuple[int, int]],
    theirs: set[tuple[str, str, str, int]],
    repeats: int,
    struck: Sequence[datetime],
    downs: Sequence[datetime],
) -> SickDevice | None:
    fatal, warned = _select_hardware_xids(seen)
    signs, signals = _collect_signs([*fatal, *warned], memory, struck, downs)
    action = _choose_action(fatal, warned, memory)
    if action is not None:
        return SickDevice(key[1], node, "sick", action, tuple(signs), tuple(signals))
    crowd = _count_affected_pods(seen, theirs)
    if crowd >= repeats:
        sign = f"application errors of {crowd} different pods within a day"
        return SickDevice(key[1], node, "suspect", DIAGNOSE, (sign,), ("driver",))
    return None


def _select_hardware_xids(seen: Sequence[DeviceXid]) -> tuple[list[DeviceXid], list[DeviceXid]]:
    """Return the fatal XIDs, and the warnings that no application causes."""
    fatal = [x for x in seen if get_xid_meaning(x.code).severity == "fatal"]
    warned = [
        x
        for x in seen
        if get_xid_meaning(x.code).severity == "warn"
        and get_xid_meaning(x.code).class_ not in {"application", "log"}
    ]
    return fatal, warned


def _collect_signs(
    hardware: Sequence[DeviceXid],
    memory: Mapping[str, tuple[int, int]],
    struck: Sequence[datetime],
    downs: Sequence[datetime],
) -> tuple[list[str], list[str]]:
    """Return the signs of broken hardware as text, and the signals that they come from."""
    signs = [_describe_xid(x) for x in hardware]
    signals = ["driver"] if hardware else []
    for sign, (most, growth) in sorted(memory.items()):
        if _is_memory_sign(sign, growth, hardware):
            signs.append(f"{sign.replace('_', ' ')} {most}" + (f", {growth} new" if growth else ""))
            signals = [*dict.fromkeys([*signals, "memory"])]
    times = [x.at for x in hardware if not x.older]
    if _is_near(times, struck):
        signals.append("pods that failed there")
    if _is_near(times, downs):
        signals.append("its node went down")
    return signs, signals


def _is_memory_sign(sign: str, growth: int, hardware: Sequence[DeviceXid]) -> bool:
    """Return whether a memory counter counts: old errors count only together with XIDs."""
    return sign == "row_remap_failure" or growth > 0 or bool(hardware)


def _choose_action(
    fatal: Sequence[DeviceXid], warned: Sequence[DeviceXid], memory: Mapping[str, tuple[int, int]]
) -> str | None:
    """Return the remedy for broken hardware; None = there is no evidence that it is broken.

    A single warning is not enough: it needs a second one, or a sign of the memory.
    """
    if "row_remap_failure" in memory:
        return REPLACE
    if fatal:
        codes = [x.code for x in fatal]
        often = max(codes.count(code) for code in codes) > MOST_REBOOTS
        return INSPECT if often else get_xid_meaning(fatal[-1].code).action
    if len(warned) > 1 or (warned and memory):
        return get_xid_meaning(warned[-1].code).action
    return None


def _count_affected_pods(seen: Sequence[DeviceXid], theirs: set[tuple[str, str, str, int]]) -> int:
    """Return the most pods within a day with application errors that the pods do not explain."""
    unexplained = [
        x
        for x in seen
        if get_xid_meaning(x.code).class_ == "application"
        and x.pod
        and (x.cluster, x.namespace, x.pod, x.code) not in theirs
    ]
    return max((_count_pods(unexplained, x.at) for x in unexplained), default=0)


def _count_pods(seen: Sequence[DeviceXid], since: datetime) -> int:
    return len({(x.namespace, x.pod) for x in seen if since <= x.at < since + DAY})


def _is_near(times: Sequence[datetime], others: Sequence[datetime]) -> bool:
    """Return whether an event was in the hour of an XID, or the one before or after."""
    return any(m - HOUR <= other < m + 2 * HOUR for m in times for other in others)


def _describe_xid(xid: DeviceXid) -> str:
    meaning = get_xid_meaning(xid.code).meaning
    when = "before the window" if xid.older else f"{xid.at:%Y-%m-%dT%H:%MZ}"
    return f"XID {xid.code}" + (f" ({meaning})" if meaning else "") + f", {when}"
