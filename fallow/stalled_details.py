"""What the finding of a stalled job says besides its figures: see `idle_details`."""

from typing import Any

import msgspec

from fallow.models import Finding


class StalledProgress(msgspec.Struct, frozen=True):
    """The progress that stands still."""

    metric: str = ""
    value: float | None = None
    since: str | None = None
    """When it moved last, in UTC."""


class LeftRank(msgspec.Struct, frozen=True):
    """The rank that left the others' wait first."""

    pod: str = ""
    device: str = ""
    node: str | None = None
    at: str = ""


class JobCheckpoint(msgspec.Struct, frozen=True):
    """The checkpoints from which the job resumes."""

    every_s: float | None = None
    source: str = ""
    """Who says so: what was seen being written, or its owner."""
    at: str | None = None
    """When the last one was seen being written; None = none was."""


class StalledDetails(msgspec.Struct, frozen=True):
    """The details of a stalled job; None is unknown."""

    why: str = ""
    signals: dict[str, str | None] = {}
    """What each kind of signal shows, in words."""
    devices: tuple[str, ...] = ()
    how: str = ""
    """`spin` or `rest`."""
    hours_of: dict[str, float] = {}
    """Its hours by the state that the ledger has them in."""
    progress: StalledProgress | None = None
    left_first: LeftRank | None = None
    checkpoint: JobCheckpoint | None = None
    actionable: bool = False
    """Whether more than its devices says that it hangs."""
    reasons: tuple[str, ...] = ()
    """Why not."""

    def document(self) -> dict[str, Any]:
        """Return the details as a finding has them."""
        fields: dict[str, Any] = msgspec.to_builtins(self)
        return fields | {"devices": [*self.devices], "reasons": [*self.reasons]}


def read_stalled_details(finding: Finding) -> StalledDetails:
    """Return the details of a stalled job; of others than Fallow writes, nothing.

    Then no checkpoint and no device of it is known, and the gates and the recheck refuse.
    """
    try:
        return msgspec.convert(finding.details, StalledDetails)
    except msgspec.ValidationError:
        return StalledDetails()
