"""Gates of the benchmarks: what crosses one, what is not measured, and what the table names."""

import pytest

from benchmarks.__main__ import ALL_NAMES, parse_options
from benchmarks.gates import FigureGate, build_gates, find_crossed, read_gates
from benchmarks.result import Result

REFERENCE_CPU_S = 2.0


def build_result(cpu_s: float | None, value: float = 9.0, unit: str = "s") -> Result:
    return Result(name="idle alone", value=value, unit=unit, cpu_s=cpu_s)


@pytest.mark.parametrize(
    ("kind", "unit", "at", "above"),
    [("cpu", "s", (12.0, 9.0), (12.02, 9.0)), ("value", "GiB", (1.0, 6.0), (1.0, 6.01))],
)
def test_a_figure_crosses_its_gate_above_the_margin_alone(
    kind: str, unit: str, at: tuple[float, float], above: tuple[float, float]
) -> None:
    gate = FigureGate("full", "idle", "idle alone", kind, stored=5.0, margin=1.2)
    assert find_crossed([gate], [build_result(*at, unit)], REFERENCE_CPU_S) == []
    (line,) = find_crossed([gate], [build_result(*above, unit)], REFERENCE_CPU_S)
    assert line.startswith(f"idle: idle alone: 6.01 {kind}, at most 6 ")


@pytest.mark.parametrize("results", [[], [build_result(None)]])
def test_a_gate_is_crossed_where_the_figure_was_not_measured(results: list[Result]) -> None:
    gate = FigureGate("full", "idle", "idle alone", "cpu", stored=5.0, margin=1.2)
    assert find_crossed([gate], results, REFERENCE_CPU_S) == ["idle: idle alone: was not measured"]


def test_gates_are_of_a_second_of_processors_and_of_sizes() -> None:
    results = [
        build_result(1.0),
        build_result(0.99),
        build_result(None),
        build_result(None, 3.0, "GiB"),
        build_result(None, 3.0, "x"),
    ]
    gates = build_gates("small", "idle", results, REFERENCE_CPU_S)
    assert [(g.kind, g.stored, g.margin) for g in gates] == [("cpu", 0.5, 2.0), ("value", 3.0, 2.0)]


def test_the_table_names_benchmarks_that_exist_each_figure_once() -> None:
    gates = read_gates()
    names = [(g.size, g.benchmark, g.figure, g.kind) for g in gates]
    assert len(set(names)) == len(names)
    assert {g.benchmark for g in gates} <= {*ALL_NAMES}
    assert {g.size for g in gates} <= {"small", "full"}


@pytest.mark.parametrize("words", [["acting"], ["--child", "acting"]])
def test_acting_and_its_process_take_its_options(
    words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["benchmarks", *words, "--seeds", "3", "--days", "2"])
    assert parse_options().days == 2


def test_the_options_of_acting_are_of_it_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["benchmarks", "idle", "--days", "2"])
    with pytest.raises(SystemExit):
        parse_options()
