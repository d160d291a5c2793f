"""Several simulated worlds as slices are those that one process simulates."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from actions.policy.model import Policy
from fallow.errors import SettingsError
from fallow.settings import Settings, load
from runtime.experiments.simulation import worlds
from runtime.experiments.simulation.options import Options, read
from runtime.experiments.simulation.worlds import simulate_worlds
from tests import runners
from tests.runtime.test_simulate import hasty
from tests.warehouse.stage_tasks import KillsFirst
from tests.warehouse.test_stages import InProcess
from warehouse.runners import choice
from warehouse.runners.choice import open_runner
from warehouse.runners.slices import Runner

runner = runners.runner


def read_options(seed: int) -> Options:
    """Return a small world; of those that are simulated here, a policy acts in that of seed 6."""
    mix = ["day-notebook=0.6", "train=0"]
    return read(days=2, gpus=8, seed=seed, every="12h", interval="15m", mix=mix)


def show_nothing(_step: str, _part: float) -> None:
    pass


@pytest.fixture(scope="module")
def rules(tmp_path_factory: pytest.TempPathFactory) -> Sequence[Policy]:
    return hasty(tmp_path_factory.mktemp("policy"))


@pytest.fixture(scope="module")
def whole(rules: Sequence[Policy]) -> list[dict[str, Any]]:
    options = [read_options(seed) for seed in (6, 5)]
    return simulate_worlds(Settings(), options, show_nothing, rules)


# test_each_seed_is_a_slice has the same without simulating.
@pytest.mark.long
def test_worlds_in_workers_are_those_of_one_process(
    whole: list[dict[str, Any]], rules: Sequence[Policy], runner: Runner
) -> None:
    options = [read_options(seed) for seed in (6, 5)]
    bodies = simulate_worlds(Settings(), options, show_nothing, rules, lambda _: runner)
    assert bodies == whole
    assert [body["seed"] for body in bodies] == [6, 5]
    assert bodies[0]["enforced"]["enforcer"]["actions"] == 1


# tests/warehouse/test_runners.py has the same with tasks of a moment.
@pytest.mark.long
def test_the_world_of_a_killed_worker_is_simulated_again(
    whole: list[dict[str, Any]], rules: Sequence[Policy], tmp_path: Path
) -> None:
    options = [read_options(seed) for seed in (6, 5)]
    killed = KillsFirst(tmp_path / "killed")
    assert simulate_worlds(Settings(), options, show_nothing, rules, killed) == whole
    assert killed.marker.exists()


@pytest.fixture
def simulated(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, bool]]:
    """Simulate nothing; return the seeds, each with whether one process has both its worlds."""
    done: list[tuple[int, bool]] = []

    def simulate(options: Options, *_: object, in_one_process: bool = False) -> dict[str, Any]:
        done.append((options.seed, in_one_process))
        return {"seed": options.seed, "gpus": options.gpus}

    monkeypatch.setattr(worlds, "simulate", simulate)
    return done


def test_each_seed_is_a_slice(simulated: list[tuple[int, bool]]) -> None:
    options = [read_options(seed) for seed in (8, 3)]
    runner = InProcess()
    bodies = simulate_worlds(Settings(), options, show_nothing, runner=runner)
    assert bodies == [{"seed": 8, "gpus": 8}, {"seed": 3, "gpus": 8}]
    assert list(map(str, runner.slices)) == ["seed 8, 2 d of 8 GPUs", "seed 3, 2 d of 8 GPUs"]
    assert simulated == [(8, True), (3, True)]


def test_one_world_and_worlds_without_workers_are_no_slices(
    simulated: list[tuple[int, bool]],
) -> None:
    runner = InProcess()
    simulate_worlds(Settings(), [read_options(8)], show_nothing, runner=runner)
    simulate_worlds(Settings(), [read_options(8), read_options(3)], show_nothing)
    assert runner.slices == []
    assert simulated == [(8, False), (8, False), (3, False)]


def test_rays_workers_need_no_warehouse_that_all_can_reach(
    simulated: list[tuple[int, bool]], monkeypatch: pytest.MonkeyPatch
) -> None:
    runner = InProcess()
    flags = {"warehouse.workers": "ray", "warehouse.ray_address": "ray://head:10001"}
    settings = load(environ={}, flags=flags).settings
    monkeypatch.setattr(choice, "RayRunner", lambda *_, **__: runner)
    simulate_worlds(settings, [read_options(8), read_options(3)], show_nothing)
    assert len(runner.slices) == len(simulated) == 2
    with pytest.raises(SettingsError, match=r"cannot open this warehouse"), open_runner(settings):
        pass
