"""Simulate several worlds: with workers, a world is a slice.

A slice has its world without enforcement too, and a warehouse of its own, which ends with it.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from fallow.settings import Settings
from runtime.experiments.simulation.options import Options
from runtime.experiments.simulation.run import show_nothing, simulate
from runtime.rendering.finding_tables import Progress
from warehouse.runners.choice import is_sliced, open_runner
from warehouse.runners.slices import Runner

if TYPE_CHECKING:
    from actions.policy.model import Policy


class WorldSlice(msgspec.Struct, frozen=True):
    """One world of several."""

    options: Options

    def __str__(self) -> str:
        options = self.options
        return f"seed {options.seed}, {options.days} d of {options.gpus} GPUs"


def simulate_worlds(
    settings: Settings,
    worlds: Sequence[Options],
    progress: Progress,
    policies: "Sequence[Policy] | None" = None,
    runner: Callable[[Settings], Runner] | None = None,
) -> list[dict[str, Any]]:
    """Return the document of each world, in their order; see `run.simulate`.

    Of the settings only the workers count: a worker opens no warehouse but the world's own.

    Raises:
        StageError: a world failed three times.
        TemporaryError: the workers cannot be reached.
    """
    if len(worlds) <= 1 or (runner is None and not is_sliced(settings)):
        return [simulate(options, progress, policies) for options in worlds]
    task = partial(simulate_slice, policies)
    slices = [WorldSlice(options) for options in worlds]
    if runner is not None:
        return runner(settings).map(task, slices)
    with open_runner(settings, is_warehouse_read=False) as workers:
        return workers.map(task, slices)


def simulate_slice(policies: "Sequence[Policy] | None", part: WorldSlice) -> dict[str, Any]:
    """Return the document of one world, both parts of which run in this process."""
    return simulate(part.options, show_nothing, policies, in_one_process=True)
