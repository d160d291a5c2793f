"""Restore a world from its log: run what happened again, without the truth about old ticks."""

from collections.abc import Iterable, Sequence
from contextlib import suppress

import numpy as np

from fallow.errors import SourceError
from simulator.kube.paths import parse_path
from simulator.kube.request import ApiRequest
from simulator.kube.server import KubeServer
from simulator.kube.status import StatusError
from simulator.models import Block
from simulator.work.signals import Carry
from simulator.world import World
from simulator.world_log import (
    AdvanceEntry,
    CheckpointEntry,
    Entry,
    RequestEntry,
    ScenarioEntry,
    ServerEntry,
)


def record_requests(world: World, server: KubeServer) -> None:
    """Let a server that starts write its clients' requests into the world's log, if it has one."""
    server.controllers.enable()
    if world.log is not None:
        world.log.append(ServerEntry())
        server.record_request = world.log.append_request


def build_checkpoint(world: World) -> CheckpointEntry:
    """Return the checkpoint of a world whose rows are stored.

    Raises:
        SourceError: the world has not advanced yet.
    """
    carry = world.carry
    if carry is None:
        raise SourceError("a world without a tick has no checkpoint")
    return CheckpointEntry(
        world.now_s,
        world.store.compute_digest(),
        carry.until_s,
        carry.energy_mj.tolist(),
        carry.temp_c.tolist(),
        carry.xid.tolist(),
    )


def restore_checkpoint(world: World, server: KubeServer, entries: Sequence[Entry]) -> list[Entry]:
    """Take a new world to the last checkpoint of its log, and return the entries after it.

    Raises:
        SourceError: the log has no checkpoint, or the world is not the one that wrote it.
    """
    checkpoints = [(n, e) for n, e in enumerate(entries) if isinstance(e, CheckpointEntry)]
    if not checkpoints:
        raise SourceError("the log of the world has no checkpoint: its run was interrupted")
    place, checkpoint = checkpoints[-1]
    for entry in entries[:place]:
        _replay(world, server, entry)
    if world.store.compute_digest() != checkpoint.digest:
        raise SourceError("the log of the world was written by another version of the simulator")
    world.resume(
        Carry(
            checkpoint.last_tick_s,
            np.array(checkpoint.energy_mj),
            np.array(checkpoint.temp_c),
            np.array(checkpoint.xid, np.int16),
        )
    )
    return [*entries[place + 1 :]]


def replay_entries(world: World, server: KubeServer, entries: Iterable[Entry]) -> list[Block]:
    """Run the entries after a checkpoint, and return the truth about their ticks.

    Raises:
        SourceError: the world is not the one that wrote them.
    """
    blocks = []
    for entry in entries:
        if isinstance(entry, AdvanceEntry):
            blocks.append(world.advance(entry.until_s))
        else:
            _replay(world, server, entry)
    return blocks


def _replay(world: World, server: KubeServer, entry: Entry) -> None:
    match entry:
        case AdvanceEntry():
            world.skip(entry.until_s)
        case ServerEntry():
            server.controllers.enable()
        case RequestEntry():
            _repeat(server, entry)
        case ScenarioEntry() | CheckpointEntry():
            pass


def _repeat(server: KubeServer, entry: RequestEntry) -> None:
    """Handle a request again; what the server refused then it refuses again."""
    request = ApiRequest(entry.method, entry.path, entry.query, entry.headers, entry.body.encode())
    with suppress(StatusError):
        server.handle(request, parse_path(server.store.catalog, request.path))
    if server.store.version != entry.version:
        raise SourceError("the log of the world was written by another version of the simulator")
