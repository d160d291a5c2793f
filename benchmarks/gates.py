"""What a benchmark's figures may be at most: + 20 % against those that are stored.

`gates.csv` has a row for each: size, benchmark, figure (its name), kind, stored, margin. The kind
`cpu` is processor seconds over those of the reference computation of the same run; `value` is the
figure itself: memory, and bytes of a sample.
"""

import csv
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import msgspec

from benchmarks.result import Result

FILE = Path(__file__).with_name("gates.csv")
FULL_MARGIN, SMALL_MARGIN = 1.2, 2.0
"""A small run lasts seconds, once, beside whatever else its machine does."""
LEAST_CPU_S = 1.0
"""Below, a figure of processors is noise."""
SIZES = frozenset({"GiB", "GB", "B/sample"})


class FigureGate(msgspec.Struct, frozen=True):
    """A stored figure, and by how much a run may be above it."""

    size: str
    benchmark: str
    figure: str
    kind: str
    stored: float
    margin: float

    @property
    def most(self) -> float:
        """The most that the figure may be."""
        return self.stored * self.margin


def read_gates() -> list[FigureGate]:
    """Return the rows of the table."""
    with FILE.open(encoding="utf-8", newline="") as file:
        return [msgspec.convert(row, FigureGate, strict=False) for row in csv.DictReader(file)]


def find_crossed(
    gates: Iterable[FigureGate], results: Sequence[Result], reference_cpu_s: float
) -> list[str]:
    """Return a line for each gate that a run of its benchmark crossed or did not reach."""
    by_name = {result.name: result for result in results}
    lines = []
    for gate in gates:
        result = by_name.get(gate.figure)
        figure = None if result is None else _read_figure(result, gate.kind, reference_cpu_s)
        if figure is None:
            lines.append(f"{gate.benchmark}: {gate.figure}: was not measured")
        elif figure > gate.most:
            lines.append(
                f"{gate.benchmark}: {gate.figure}: {figure:.3g} {gate.kind}, "
                f"at most {gate.most:.3g} ({gate.margin:g} x {gate.stored:.3g})"
            )
    return lines


def build_gates(
    size: str, benchmark: str, results: Iterable[Result], reference_cpu_s: float
) -> list[FigureGate]:
    """Return the gates of what a run measured."""
    margin = FULL_MARGIN if size == "full" else SMALL_MARGIN
    gates = []
    for result in results:
        kind = "value" if result.unit in SIZES else "cpu"
        figure = _read_figure(result, kind, reference_cpu_s)
        if figure is None or (kind == "cpu" and (result.cpu_s or 0) < LEAST_CPU_S):
            continue
        gates.append(FigureGate(size, benchmark, result.name, kind, float(f"{figure:.3g}"), margin))
    return gates


def write_gates(measured: Mapping[tuple[str, str], Sequence[FigureGate]]) -> None:
    """Replace the gates of the benchmarks and sizes that were measured; keep the others."""
    others = [gate for gate in read_gates() if (gate.size, gate.benchmark) not in measured]
    gates = [*others, *(gate for part in measured.values() for gate in part)]
    with FILE.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(FigureGate.__struct_fields__)
        writer.writerows(
            (g.size, g.benchmark, g.figure, g.kind, f"{g.stored:g}", f"{g.margin:g}")
            for g in sorted(gates, key=lambda g: (g.size, g.benchmark, g.figure))
        )


def _read_figure(result: Result, kind: str, reference_cpu_s: float) -> float | None:
    if kind == "value":
        return result.value
    return None if result.cpu_s is None else result.cpu_s / reference_cpu_s
