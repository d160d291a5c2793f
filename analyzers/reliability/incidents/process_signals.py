"""Turn failed processes, events, stalls and progress into signals."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta

import msgspec

from analyzers.reliability.incidents.device_signals import PodOwners
from analyzers.reliability.incidents.records import ANOTHERS, Signal
from analyzers.reliability.incidents.rows import (
    EndedProcess,
    FailedContainer,
    IncidentEvent,
    LastExit,
    ProgressMove,
    StandingRequests,
)
from analyzers.reliability.incidents.tables import (
    EventSignal,
    read_event_signals,
    read_exit_signals,
    read_message_signals,
)
from analyzers.workload_rows import Owner
from fallow.models import Finding

AT_ONCE = timedelta(minutes=2)
"""A process that ends with an error this soon never worked."""
LOOP = 3
"""Restarts from which a container that is killed for memory, or crashes, is in a loop."""
TWICE = 2
BOOT = timedelta(minutes=20)
"""A node that is away for longer than this does not only boot."""
SKEW = timedelta(seconds=30)
"""Clocks that differ by more than this have no common order of events (domain rule of actions)."""
STANDS_STILL = timedelta(minutes=10)
"""Requests that wait for longer without any token are an incident, as a job's progress is."""
TOGETHER = timedelta(minutes=2)
"""Nodes of a zone that go away, and images that fail, within this failed together."""
ONE_NODE = timedelta(hours=1)
"""Workloads that end at once on one node within this ended for one reason: what a node makes fail
makes room for the next at once, and jobs with mistakes of their own come days apart."""


def list_process_signals(processes: Sequence[EndedProcess]) -> Iterator[Signal]:
    """Yield the signals of failed containers."""
    soon: dict[Owner, list[Signal]] = defaultdict(list)
    starts: Counter[Owner] = Counter()
    for process in processes:
        for signal in _list_container_signals(process):
            if signal.name == "exit_at_once":
                soon[process.owner].append(signal)
                starts[process.owner] += 1 + max(c.restarts for c in process.list_containers())
            yield signal
    for owner, theirs in soon.items():
        if starts[owner] >= TWICE:
            last = max(theirs, key=lambda s: s.known_at)
            yield _rename(last, "exit_at_once_repeated", f"{starts[owner]} starts ended at once")
    yield from _list_bad_nodes([s for theirs in soon.values() for s in theirs])


def _list_container_signals(process: EndedProcess) -> Iterator[Signal]:
    for container in process.list_containers():
        last = container.last_exit
        at = _strip(last.finished_at) if last and last.finished_at else process.finished_at
        if at is None:
            at = process.last_seen
        if at is None:
            continue
        about = (process.owner, process.node, "", process.pod)
        # A clock that is ahead does not make the collector know it later.
        detected_at = min(at, process.last_seen or at)
        base = Signal("", at, at, detected_at, process.cluster, "", "pod", *about)
        if last is not None and container.oom_killed:
            yield _rename(base, "oom_killed", f"{container.name} was killed at its memory limit")
            if container.restarts >= LOOP:
                yield _rename(base, "restarts_repeated", f"{container.restarts} restarts")
        elif last is not None:
            yield from _list_failure_signals(base, container, last)
            if _measure_run(last, process, at) <= AT_ONCE:
                yield _rename(base, "exit_at_once", f"{container.name} ended at once")
        if process.last_seen is not None and at > process.last_seen + SKEW:
            yield _rename(base, "clock_skew", f"{process.node} is ahead of the collector")


def _list_failure_signals(
    base: Signal, container: FailedContainer, last: LastExit
) -> Iterator[Signal]:
    yield _rename(base, "process_failed", f"{container.name} ended with {last.code}")
    if last.code in read_exit_signals():
        yield _rename(base, read_exit_signals()[last.code], f"exit code {last.code}")
    if container.restarts >= LOOP:
        yield _rename(base, "crash_loop", f"{container.restarts} restarts")
    yield from _list_last_words(base, last)


def _list_last_words(base: Signal, last: LastExit) -> Iterator[Signal]:
    text = last.message.lower()
    names = {row.signal for row in read_message_signals() if row.pattern in text}
    for name in sorted(names):
        yield _rename(base, name, last.message.strip().splitlines()[-1][:200])


def _measure_run(last: LastExit, process: EndedProcess, at: datetime) -> timedelta:
    begun = _strip(last.started_at) if last.started_at else process.started_at
    return at - begun if begun is not None else timedelta.max


def _list_bad_nodes(soon: Sequence[Signal]) -> Iterator[Signal]:
    """Yield nodes on which different workloads end at once in one hour, and nowhere else."""
    nodes_of: dict[Owner, set[str]] = defaultdict(set)
    by_node: dict[tuple[str, str], list[tuple[Owner, Signal]]] = defaultdict(list)
    for signal in soon:
        if signal.owner is not None:
            nodes_of[signal.owner].add(signal.node)
            by_node[signal.cluster, signal.node].append((signal.owner, signal))
    for theirs in by_node.values():
        only_here = [(owner, s) for owner, s in theirs if len(nodes_of[owner]) == 1]
        yield from dict(_list_ends_of_an_hour(only_here)).values()


def _list_ends_of_an_hour(ends: Sequence[tuple[Owner, Signal]]) -> Iterator[tuple[Owner, Signal]]:
    """Yield the ends on a node beside which another workload ended: known when both are."""
    for owner, signal in ends:
        known_times: dict[Owner, datetime] = {}
        for other, end in ends:
            if abs(end.at - signal.at) <= ONE_NODE:
                known_times[other] = min(known_times.get(other, end.known_at), end.known_at)
        if len(known_times) >= TWICE:
            known_at = max(signal.known_at, sorted(known_times.values())[TWICE - 1])
            text = f"{len(known_times)} workloads end at once on {signal.node} only"
            named = _rename(signal, "exit_at_once_workloads", text)
            yield owner, msgspec.structs.replace(named, known_at=known_at)


def list_event_signals(
    events: Sequence[IncidentEvent], owners: PodOwners, zones: Mapping[tuple[str, str], str]
) -> Iterator[Signal]:
    """Yield the signals of events, and of events that came together."""
    signals = []
    for event in events:
        row = _match(event)
        if row is None:
            continue
        node = event.name if event.kind == "Node" else ""
        pod = event.name if event.kind == "Pod" else ""
        owner = _find_event_owner(event, owners)
        text = f"{event.reason}: {event.message}"[:200] if event.message else event.reason
        signal = Signal(
            row.signal, event.at, event.at, event.at, event.cluster, text, "event",
            owner, node, "", pod,
        )  # fmt: skip
        signals.append(signal)
        if not event.uid and row.signal not in ANOTHERS:
            signals.append(_rename(signal, "event_without_uid", text))
    yield from signals
    yield from _list_lost_zones(signals, zones)
    yield from _list_lost_images([s for s in signals if s.name == "image_pull_failed"])


def _find_event_owner(event: IncidentEvent, owners: PodOwners) -> Owner | None:
    if event.kind == "Node":
        return None
    if event.kind == "Pod":
        return owners.get((event.cluster, event.namespace, event.name))
    return event.cluster, event.namespace, event.kind, event.name


def _match(event: IncidentEvent) -> EventSignal | None:
    message = event.message.lower()
    for row in read_event_signals():
        if (row.reason, row.kind) == (event.reason, event.kind) and row.pattern in message:
            return row
    return None


def _list_lost_zones(
    signals: Sequence[Signal], zones: Mapping[tuple[str, str], str]
) -> Iterator[Signal]:
    lost = [s for s in signals if s.name == "node_not_ready"]
    for signal in lost:
        zone = zones.get((signal.cluster, signal.node))
        with_it = {
            other.node
            for other in lost
            if zone
            and other.cluster == signal.cluster
            and zones.get((other.cluster, other.node)) == zone
            and abs(other.at - signal.at) <= TOGETHER
        }
        if len(with_it) < TWICE:
            continue
        text = f"{len(with_it)} nodes of {zone} within two minutes"
        yield _rename(signal, "nodes_not_ready_together", text)
        theirs = [s for s in signals if s.node in with_it and s.cluster == signal.cluster]
        yield from _list_not_rebooted(signal, theirs, text)


def _list_not_rebooted(lost: Signal, theirs: Sequence[Signal], text: str) -> Iterator[Signal]:
    """Yield that nodes did not boot again: two minutes after their return, or after a boot's time.

    The kubelet reports a boot when it registers, as early as that the node is ready.
    """
    returns = [s.at for s in theirs if s.name == "node_ready" and s.at > lost.at]
    detected_at = min([lost.at + BOOT, *(at + TOGETHER for at in returns)])
    boots = [s for s in theirs if s.name == "node_rebooted" and lost.at < s.at <= detected_at]
    if not boots:
        signal = _rename(lost, "nodes_not_rebooted", text)
        yield msgspec.structs.replace(signal, known_at=detected_at)


def _list_lost_images(failed: Sequence[Signal]) -> Iterator[Signal]:
    for signal in failed:
        owners = {
            s.owner
            for s in failed
            if s.owner and s.cluster == signal.cluster and abs(s.at - signal.at) <= 5 * TOGETHER
        }
        if len(owners) >= TWICE:
            text = f"images of {len(owners)} workloads fail"
            yield _rename(signal, "images_fail_together", text)


def list_stall_signals(stalls: Iterable[Finding]) -> Iterator[Signal]:
    """Yield the signals of stalled jobs (findings of the analyzer `stalled`)."""
    for stall in stalls:
        subject = stall.subject
        owner = subject.cluster, subject.namespace, subject.workload_kind, subject.workload
        start, end = _strip(stall.window.start), _strip(stall.window.end)
        name = "stall_confirmed" if stall.evidence == "confirmed" else "stall_suspected"
        detected_at = start + timedelta(minutes=10)
        text = str(stall.details.get("why", ""))
        for node in subject.nodes or ("",):
            yield Signal(
                name, start, end, detected_at, subject.cluster, text, "finding", owner, node
            )


def list_request_signals(
    stretches: Iterable[StandingRequests], owners: PodOwners
) -> Iterator[Signal]:
    """Yield the pods whose server lets requests wait and generates no token."""
    for row in stretches:
        owner = owners.get((row.cluster, row.namespace, row.pod))
        if owner is not None:
            text = f"{row.waiting:.0f} requests wait and no token comes"
            yield Signal(
                "requests_stand_still", row.at, row.ended, row.at + STANDS_STILL, row.cluster, text,
                "pod_sample", owner, "", "", row.pod,
            )  # fmt: skip


def list_progress_signals(
    moves: Sequence[ProgressMove], owners: PodOwners, failing: Iterable[Signal]
) -> Iterator[Signal]:
    """Yield the workloads whose progress rose twice after each of these signs."""
    by_owner: dict[Owner, list[ProgressMove]] = defaultdict(list)
    for move in moves:
        owner = owners.get((move.cluster, move.namespace, move.pod))
        if owner is not None:
            by_owner[owner].append(move)
    for sign in failing:
        if sign.owner is None:
            continue
        # A row of the same scrape may be of before the sign.
        after = [m for m in by_owner[sign.owner] if m.at > sign.end + TOGETHER]
        if len(after) >= TWICE:
            last = after[TWICE - 1].at
            yield Signal(
                "progress_advances", sign.at, sign.end, last, sign.cluster,
                f"its progress rose at {last:%H:%M:%S}", "progress_sample", sign.owner, sign.node,
                "", after[0].pod,
            )  # fmt: skip


def _rename(signal: Signal, name: str, text: str) -> Signal:
    return Signal(
        name, signal.at, signal.end, signal.known_at, signal.cluster, text, signal.source,
        signal.owner, signal.node, signal.device, signal.pod,
    )  # fmt: skip


def _strip(time: datetime) -> datetime:
    return time.astimezone(UTC).replace(tzinfo=None) if time.tzinfo else time
