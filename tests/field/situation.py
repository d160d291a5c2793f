"""A situation as data: what its cluster feeds, and the answer that was worked out by hand.

All situations of one home are imported first, each as a cluster of its own name; then one command
answers for all of them, and each test reads the rows of its cluster.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.field.front import Front
from tests.field.history import Scrape
from tests.field.site import HOURS, ago, write_dump, write_lines, write_time

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Table:
    """A table of samples, and how `fallow import samples` is told to read it."""

    content: str | bytes
    columns: str
    name: str = "table.csv"
    interval: str = "5m"
    refused: str = ""
    """What its import is refused with, if it is."""


@dataclass(frozen=True)
class Situation:
    """Inputs of one cluster, and what the commands have to say of it.

    `hours` and `dollars`: by dimensions of `fallow spend`, `{"node,state": {"a,idle": 6.0}}`; a
    dimension that is named is compared whole. `nodes` and `pods`: columns by name. `answers`:
    rows of a statement, in which `cluster` may be named. `findings`: columns of the window's idle
    findings by `namespace/workload`, all of them. `words`: what the imports print.
    """

    kind: str
    dumps: Sequence[Sequence[Row]] = ()
    lines: Sequence[str] = ()
    texts: Sequence[bytes] = ()
    texts_refused: str = ""
    tables: Sequence[Table] = ()
    scrapes: Sequence[Scrape] = ()
    front: Front | None = None
    since: str = write_time(ago(HOURS))
    refused: str = ""
    """What the import from the Prometheus is refused with."""
    window_hours: int = HOURS
    words: Sequence[str] = ()
    hours: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    dollars: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    tolerance_hours: float = 0.02
    tolerance_share: float = 0.005
    nodes: Mapping[str, Row] = field(default_factory=dict)
    pods: Mapping[str, Row] = field(default_factory=dict)
    answers: Mapping[str, Sequence[Row]] = field(default_factory=dict)
    stops: Mapping[str, str] = field(default_factory=dict)
    """By workload what a policy that stops idle ones says of it (`resting.build_situation`)."""
    lifted: tuple[str, str] = ("", "")
    """What such a policy lifts by name, and which workloads it stops then."""
    findings: Mapping[str, Row] | None = None
    waits: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """By workload that waits: its `reason`, and the state of ways in (`fallow queue`)."""
    says: Sequence[str] = ()
    """What the reasons and ways in of those workloads say."""
    doctor: Sequence[str] = ()
    fails: str | None = None
    """Why Fallow does not yet answer so."""
    runs: bool = True
    """Whether a situation that fails is tried: not where it would take minutes."""
    long: bool = True

    def write(self, folder: Path) -> list[tuple[list[str | Path], str]]:
        """Write the files; return the commands that import them, and why each is refused."""
        folder.mkdir(parents=True)
        commands: list[tuple[list[str | Path], str]] = []
        for number, objects in enumerate(self.dumps):
            path = write_dump(folder / f"dump-{number}.json", objects)
            commands.append((["import", "kubectl", path], ""))
        if self.lines:
            path = write_lines(folder / "metrics.txt", self.lines)
            commands.append((["import", "exposition", path, "--interval", "5m"], ""))
        for number, text in enumerate(self.texts):
            path = folder / f"text-{number}"
            path.write_bytes(text)
            commands.append(
                (["import", "exposition", path, "--interval", "5m"], self.texts_refused)
            )
        for number, table in enumerate(self.tables):
            path = folder / f"{number}-{table.name}"
            content = table.content
            path.write_bytes(content if isinstance(content, bytes) else content.encode())
            options = ["--columns", table.columns, "--interval", table.interval, "--rate", "2"]
            commands.append((["import", "samples", path, *options], table.refused))
        return commands
