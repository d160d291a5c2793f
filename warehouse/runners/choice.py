"""Choose the runner that the settings name."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

from fallow.errors import SettingsError
from fallow.settings import Settings
from warehouse.runners.local import LocalRunner
from warehouse.runners.ray_cluster import LOCAL, RayRunner
from warehouse.runners.slices import Runner

S = TypeVar("S")
T = TypeVar("T")


def is_sliced(settings: Settings) -> bool:
    """Whether heavy stages are cut into slices; else the engine's threads do them here."""
    return settings.warehouse.workers == "ray" or settings.warehouse.processes > 1


@contextmanager
def open_runner(settings: Settings, *, is_warehouse_read: bool = True) -> Iterator[Runner]:
    """Yield the runner of the settings, and stop its workers afterwards.

    `is_warehouse_read`: whether the slices open the warehouse of the settings.

    Raises:
        SettingsError: Ray's workers could not open the warehouse.
        Others: as `RayRunner`.
    """
    wanted = settings.warehouse
    runner: Runner
    if wanted.workers == "ray":
        if is_warehouse_read:
            _refuse_embedded(settings)
        runner = RayRunner(wanted.ray_address, tasks=wanted.processes)
    else:
        runner = LocalRunner(max(1, wanted.processes))
    try:
        yield runner
    finally:
        runner.close()


def map_slices(
    settings: Settings,
    task: Callable[[S], T],
    slices: Sequence[S],
    runner: Callable[[Settings], Runner] | None = None,
) -> list[T]:
    """Return the task's result for each slice, by a given runner or by that of the settings.

    Raises: as `open_runner` and `Runner.map`.
    """
    if runner is not None:
        return runner(settings).map(task, slices)
    with open_runner(settings) as workers:
        return workers.map(task, slices)


def _refuse_embedded(settings: Settings) -> None:
    wanted = settings.warehouse
    if wanted.ray_address != LOCAL and not (wanted.catalog and "://" in wanted.data):
        raise SettingsError(
            "warehouse.workers is ray, and its workers cannot open this warehouse: the catalog "
            "has to be in PostgreSQL (warehouse.catalog) and the data in a store that all can "
            "reach (warehouse.data: s3://...)",
            hint="set both, or set warehouse.workers to local",
        )
