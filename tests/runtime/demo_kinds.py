"""The kinds of findings: those that the demo plants, and why it lacks the others."""

import csv
from pathlib import Path
from typing import NamedTuple


class DemoKind(NamedTuple):
    """One row of `demo_kinds.csv`: a kind of finding, and in which cluster it is planted.

    `absent`: why the demo has none; "" = it has.
    """

    analyzer: str
    kind: str
    cluster: str
    absent: str


def read_demo_kinds() -> list[DemoKind]:
    """Return every kind of finding of the built-in analyzers."""
    with Path(__file__).with_suffix(".csv").open(encoding="utf-8", newline="") as file:
        return [DemoKind(**row) for row in csv.DictReader(file)]
