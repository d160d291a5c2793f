"""The tables are what the public data say, and the generated pods are what the tables say."""

import csv
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from simulator.work import distributions
from simulator.work.behaviours import WorkPlan, build_script
from simulator.work.chance import Array
from simulator.work.kinds import read_kinds
from tools import fit

pytestmark = pytest.mark.slow

MONDAY = 1_789_948_800.0
"""2026-09-21 00:00 UTC."""


def ticks(begin: float, count: int) -> Array:
    return begin + 30.0 * np.arange(count, dtype=np.float64)


WEEK = ticks(MONDAY, 7 * 2880)


@pytest.mark.real_data
def test_fitting_the_public_data_again_gives_the_tables(
    shared_data: Callable[[str], Path],
) -> None:
    fitted = fit.fit(shared_data("acme").parent)
    for name, rows in fitted.items():
        stored = distributions.read(name)
        assert [list(r) for r in rows] == [list(r) for r in stored]
        for row, kept in zip(rows, stored, strict=True):
            *names, value = row
            assert [str(row[n]) for n in names] == [kept[n] for n in names]
            assert float(kept[value]) == pytest.approx(float(row[value]), rel=1e-3)


@pytest.mark.real_data
def test_the_fit_writes_what_the_project_keeps(
    shared_data: Callable[[str], Path], tmp_path: Path
) -> None:
    fit.main(str(shared_data("acme").parent), str(tmp_path))
    with (tmp_path / "gentd26_hours.csv").open() as file:
        assert len(list(csv.DictReader(file))) == 24


def test_training_has_the_activity_and_memory_of_acmes_working_gpus() -> None:
    compute = read_kinds().number("compute")
    sm, memory = [], []
    for seed in range(600):
        sample = build_script(WorkPlan("training", seed), MONDAY).play(ticks(MONDAY + 86_400, 120))
        working = sample.kind[0] == compute
        if working.any():
            sm.append(sample.sm[0][working].mean())
            memory.append(sample.memory[0][working].mean())
    for law, values in (("sm_active", sm), ("memory", memory)):
        for p in (0.1, 0.25, 0.5, 0.75, 0.9):
            expected = distributions.compute_value(law, p)
            assert np.quantile(values, p) == pytest.approx(expected, abs=0.07), (law, p)


def test_serving_pods_are_on_and_off_as_the_measured_ones() -> None:
    days = ticks(MONDAY + 86_400, 2880)
    busy = np.stack(
        [build_script(WorkPlan("serving", seed), MONDAY).play(days).busy[0] for seed in range(150)]
    )
    # The trace of 80 pods: 66.66 % of samples at most 1 % busy, 7.56 % busy in the mean.
    assert (busy <= 0.01).mean() == pytest.approx(0.6666, abs=0.05)
    assert busy.mean() == pytest.approx(0.0756, abs=0.015)
    on = (busy > 0.01).reshape(150, 24, 120).mean(axis=(0, 2))
    assert np.abs(on - distributions.read_hours()).max() < 0.08


def test_serving_runs_are_as_long_as_the_measured_ones() -> None:
    lengths = []
    for seed in range(60):
        timeline = build_script(WorkPlan("serving", seed), MONDAY).timeline
        timeline.grow(MONDAY + 2 * 86_400)
        serves = timeline.kind[:-1] == read_kinds().number("serve")
        lengths.append(np.diff(timeline.begin)[serves])
    values = np.concatenate(lengths)
    for p in (0.5, 0.8, 0.9, 0.95):
        expected = distributions.compute_value("on_s", p)
        assert np.quantile(values, p) == pytest.approx(expected, rel=0.1), p
