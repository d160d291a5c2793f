"""What an idle finding says besides its figures: written by the idle analyzer, read by the loop.

In the warehouse it is JSON (`Finding.details`). Whoever acts reads these fields, so that a renamed
one fails at the type checker and not by skipping a check.
"""

from typing import Any

import msgspec

from fallow.models import Finding


class IdleRule(msgspec.Struct, frozen=True):
    """By which settings it was judged."""

    threshold: float = 0.0
    exit_threshold: float = 0.0
    exit_samples: int = 0
    min_duration: str = ""
    service_duration: str = ""
    max_gap: str = ""
    coverage: float = 0.0
    power_margin_w: float = 0.0


class IdleSignalWords(msgspec.Struct, frozen=True):
    """What each kind of signal shows, in words."""

    compute: str = ""
    physics: str | None = None
    host: str | None = None
    intent: str | None = None


class Hold(msgspec.Struct, frozen=True):
    """One reason to leave an idle workload alone."""

    why: str
    """What holds it, a colon, and what that means."""
    name: str = ""
    """What a policy names to lift it: a budget's namespace and name, a label, a container; empty =
    nothing lifts it."""


class ReturnEstimate(msgspec.Struct, frozen=True):
    """How probable it is that it is wanted again soon, and from what that is known."""

    probability: float
    within: str = ""
    exposures: int | None = None
    returns: int | None = None
    own_days: int | None = None
    own_returns: int | None = None


class IdleDetails(msgspec.Struct, frozen=True):
    """The details of an idle or partly idle finding; None is unknown, and is not stored."""

    why: str = ""
    signals: IdleSignalWords = IdleSignalWords()
    actionable: bool = False
    """Whether enough signals of different kinds agree to act upon it."""
    reasons: tuple[str, ...] = ()
    """Why not."""
    coverage: float | None = None
    samples: int | None = None
    devices_held: int | None = None
    devices_idle: int | None = None
    devices: tuple[str, ...] = ()
    """Its idle devices; of very many, the first."""
    read_from: str = ""
    """`sample` or `rollup_5m`."""
    rule: IdleRule = IdleRule()
    vetoes: tuple[str, ...] | None = None
    held_by: tuple[Hold, ...] | None = None
    is_return_considered: bool | None = msgspec.field(default=None, name="wanted_asked")
    """False: the settings leave out whether it is wanted soon."""
    wanted: ReturnEstimate | None = None
    longest_rest: str | None = None
    power_w: float | None = None
    idle_band_w: float | None = None
    """The learned idle power of its model."""
    idle_band: str | None = None
    """From what it was learned."""

    def document(self) -> dict[str, Any]:
        """Return the details as a finding has them."""
        fields: dict[str, Any] = msgspec.to_builtins(self)
        return {
            name: [*value] if isinstance(value, tuple) else value
            for name, value in fields.items()
            if value is not None
        }


def is_idle(finding: Finding) -> bool:
    """Return whether a finding has `IdleDetails`, with the end and coverage of its samples."""
    return finding.verdict in {"idle", "partly idle"}


def list_vetoes(finding: Finding) -> tuple[str, ...]:
    """Return what forbids an act, as a finding of any analyzer says it."""
    if is_idle(finding):
        return read_idle_details(finding).vetoes or ()
    return tuple(map(str, finding.details.get("vetoes") or ()))


def read_idle_details(finding: Finding) -> IdleDetails:
    """Return the details of an idle or partly idle finding; of others than Fallow writes, nothing.

    Then it is not known to be actionable, and the gate `evidence` refuses.
    """
    try:
        return msgspec.convert(finding.details, IdleDetails)
    except msgspec.ValidationError:
        return IdleDetails()
