"""Read the failure cases and what happens in them: `cases.csv`, `faults.csv`."""

from collections import defaultdict
from collections.abc import Mapping
from functools import cache

import msgspec

from fallow.resources import read_table


class CaseFault(msgspec.Struct, frozen=True):
    """One thing that happens in a case; `on` names ranks, jobs or a node."""

    at_s: float
    """After the start of the case."""
    fault: str
    on: str
    value: str


class FailureCase(msgspec.Struct, frozen=True):
    """A failure, or a near twin of one; each has nodes, jobs and faults of its own."""

    name: str
    twin_of: str
    """Empty = this is the failure."""
    behaviour: str
    hang_s: float | None
    """When its ranks stop working, after the start."""
    jobs: int
    ranks: int
    """Of each job, one GPU each."""
    meaning: str
    faults: tuple[CaseFault, ...]


@cache
def read_cases() -> Mapping[str, FailureCase]:
    """Return every case by name."""
    faults: dict[str, list[CaseFault]] = defaultdict(list)
    for row in read_table("tests.failure_cases", "faults.csv"):
        fault = CaseFault(float(row["at_s"]), row["fault"], row["on"], row["value"])
        faults[row["case"]].append(fault)
    cases = {
        row["case"]: FailureCase(
            name=row["case"],
            twin_of=row["twin_of"],
            behaviour=row["behaviour"],
            hang_s=float(row["hang_s"]) if row["hang_s"] else None,
            jobs=int(row["jobs"]),
            ranks=int(row["ranks"]),
            meaning=row["meaning"],
            faults=tuple(faults.pop(row["case"], ())),
        )
        for row in read_table("tests.failure_cases", "cases.csv")
    }
    if faults:
        raise ValueError(f"faults of no case: {', '.join(sorted(faults))}")
    return cases
