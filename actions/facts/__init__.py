"""Facts: all that stored rows say about a case at one moment, and nothing later."""

from collections.abc import Mapping, Sequence
from datetime import datetime

from fallow.acting import Facts, History
from fallow.nouns import Finding
from fallow.seams import Views


def gather(
    views: Views,
    findings: Sequence[Finding],
    now: datetime,
    histories: Mapping[tuple[str, str], History] = {},
) -> list[Facts]:
    """Return the facts of all findings that recommend something, in their order."""
    raise NotImplementedError
