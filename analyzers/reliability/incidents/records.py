"""Define incidents: signals, ranked causes, and the record that all of them become."""

from datetime import datetime
from typing import Literal

import msgspec

from analyzers.workload_rows import Owner

Step = Literal[
    "restart in place",
    "restart elsewhere",
    "recycle the node",
    "reset the GPU",
    "rerun from the checkpoint",
    "tell the owner",
    "hold",
]
UNKNOWN = "unknown"
HOLD: Step = "hold"
ANOTHERS = frozenset({"progress_advances", "node_ready", "controller_restarts"})
"""Signals that describe an incident and are none by themselves."""


class Signal(msgspec.Struct, frozen=True):
    """One piece of evidence; naive UTC. `known_at`: when the telemetry showed it."""

    name: str
    at: datetime
    end: datetime
    known_at: datetime
    cluster: str
    text: str
    source: str
    """The table that it was read from."""
    owner: Owner | None = None
    node: str = ""
    device: str = ""
    pod: str = ""


class RankedCause(msgspec.Struct, frozen=True):
    """A cause that signals of an incident speak for, and how much."""

    cause: str
    class_: str = msgspec.field(name="class")
    weight: int
    signals: tuple[str, ...]


class IncidentVerdict(msgspec.Struct, frozen=True):
    """What caused an incident, and the one step; every reason to hold instead."""

    cause: str
    class_: str
    remedy: Step
    """The step that the cause calls for."""
    step: Step
    """The step to take: the remedy, or hold."""
    holds: tuple[str, ...]
    why: str
    causes: tuple[RankedCause, ...]


class LostHours(msgspec.Struct, frozen=True):
    """Work that an incident destroyed; `most`: all since the start of its pods, None = unknown."""

    gpu_hours: float | None
    basis: Literal["measured", "estimated", "unknown"]
    most: float | None


class Incident(msgspec.Struct, frozen=True):
    """One failure of a workload or device, with everything that is known of it; naive UTC."""

    id: str
    cluster: str
    start: datetime
    end: datetime
    known_at: datetime
    """When the evidence was enough for the verdict."""
    verdict: IncidentVerdict
    signals: tuple[Signal, ...]
    owners: tuple[Owner, ...]
    nodes: tuple[str, ...]
    devices: tuple[str, ...]
    models: tuple[str, ...]
    gpus: float
    lost: LostHours
    recovery_s: float | None
    """From the first sign to the first work of the replacement; None = none was seen."""
    recovery_gpu_hours: float | None = None
    """What its pods held without work then (`work_lost`); None = not known."""
