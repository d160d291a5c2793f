"""Read the tables of incidents: causes and their signals, steps, contradictions, texts, XIDs."""

from collections.abc import Mapping
from functools import cache

from analyzers.queries import load_records
from analyzers.reliability.incidents.records import UNKNOWN, Step
from fallow.rows import Row
from fallow.xids import get_xid_meaning

FOLDER = "reliability/incidents"
LEADING = 2
"""Weight of a signal that names the place of its cause."""


class CauseSignal(Row, frozen=True, rename={"class_": "class"}):
    """How much one signal speaks for one cause (`causes.csv`).

    `symptom`: it has causes of its own: 1 = all that are no symptoms, 2 = those and the symptoms of
    1.
    """

    cause: str
    class_: str
    signal: str
    weight: int
    source: str
    symptom: int = 0


class StepRow(Row, frozen=True):
    """The step that a cause calls for (`steps.csv`).

    `otherwise` is the step without a known checkpoint.
    """

    cause: str
    step: Step
    target: str
    why: str
    otherwise: Step | None = None


class Contradiction(Row, frozen=True):
    """Signals that cannot both be true, or one that makes evidence worthless."""

    signal: str
    why: str
    other: str = ""


class EventSignal(Row, frozen=True):
    """The signal of an event's reason; `pattern` is part of its message, in lower case."""

    reason: str
    kind: str
    signal: str
    source: str
    pattern: str = ""


class FailedObject(Row, frozen=True):
    """The command by which an owner starts a failed object again (`failed_objects.csv`)."""

    kind: str
    command: str


class MessageSignal(Row, frozen=True):
    """The signal of a termination message that has a text, in lower case."""

    pattern: str
    signal: str
    source: str


class ExitSignal(Row, frozen=True):
    """The signal of an exit code."""

    code: int
    signal: str
    source: str


class XidSignal(Row, frozen=True):
    """The signal of an XID that its class alone does not decide."""

    xid: int
    signal: str
    source: str


@cache
def read_cause_signals() -> tuple[CauseSignal, ...]:
    """Return the weights of signals by cause."""
    return tuple(load_records(f"{FOLDER}/causes", CauseSignal))


@cache
def list_leading_signals(cause: str) -> frozenset[str]:
    """Return the signals that show where a cause is: those of `LEADING` weight or more.

    The others are what every rank of a job shows.
    """
    return frozenset(
        row.signal for row in read_cause_signals() if row.cause == cause and row.weight >= LEADING
    )


def list_classes() -> list[str]:
    """Return the classes of causes, with `unknown`."""
    return sorted({row.class_ for row in read_cause_signals()} | {UNKNOWN})


@cache
def read_steps() -> Mapping[str, StepRow]:
    """Return the step of each cause."""
    return {row.cause: row for row in load_records(f"{FOLDER}/steps", StepRow)}


@cache
def read_contradictions() -> tuple[Contradiction, ...]:
    """Return what makes an incident's evidence contradict itself."""
    return tuple(load_records(f"{FOLDER}/contradictions", Contradiction))


@cache
def read_event_signals() -> tuple[EventSignal, ...]:
    """Return the signals of events."""
    return tuple(load_records(f"{FOLDER}/event_signals", EventSignal))


@cache
def read_owner_commands() -> Mapping[str, str]:
    """Return the command that starts a failed object again, by its kind."""
    rows = load_records(f"{FOLDER}/failed_objects", FailedObject)
    return {row.kind: row.command for row in rows}


@cache
def read_message_signals() -> tuple[MessageSignal, ...]:
    """Return the signals of termination messages."""
    return tuple(load_records(f"{FOLDER}/message_signals", MessageSignal))


@cache
def read_exit_signals() -> Mapping[int, str]:
    """Return the signals of exit codes."""
    return {row.code: row.signal for row in load_records(f"{FOLDER}/exit_signals", ExitSignal)}


@cache
def _read_xid_signals() -> Mapping[int, str]:
    return {row.xid: row.signal for row in load_records(f"{FOLDER}/xid_signals", XidSignal)}


def get_xid_signal(code: int) -> str | None:
    """Return the signal of an XID; None = it is only recorded."""
    named = _read_xid_signals().get(code)
    if named is not None:
        return named
    meaning = get_xid_meaning(code)
    if meaning.severity == "application":
        return "xid_application"
    return "xid_reset" if meaning.class_ == "gpu" else None
