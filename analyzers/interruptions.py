"""The causes of interruptions by the reasons of Kubernetes events: `interruptions.csv`."""

from collections.abc import Mapping
from functools import cache

from analyzers.queries import load_records
from fallow.rows import Row


class InterruptionReason(Row, frozen=True):
    """One row of `interruptions.csv`: the reason of an event, and what ended the node or pod."""

    reason: str
    cause: str
    source: str


@cache
def read_causes() -> Mapping[str, str]:
    """Return the cause of each event reason."""
    rows = load_records("interruptions", InterruptionReason)
    return {row.reason: row.cause for row in rows}


def list_reasons(cause: str) -> list[str]:
    """Return the reasons of events with a cause."""
    return [reason for reason, its_cause in read_causes().items() if its_cause == cause]
