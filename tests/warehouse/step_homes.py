"""A home on which one step is done again and again, and what the step may leave behind."""

import shutil
from pathlib import Path

import duckdb

from fallow.errors import FallowError, WarehouseError
from fallow.settings import Settings
from tests.warehouse.write_steps import ACKNOWLEDGED, STEPS, State, read_state
from tests.warehouse.write_traces import StepProcesses
from warehouse.catalog import CATALOG_FILE
from warehouse.lake import Warehouse
from warehouse.verification import verify_warehouse

FAILURES = (AssertionError, FallowError, duckdb.Error, OSError)
"""What a check of a home raises that is not as it should be."""


class StepHome:
    """A prepared home, always at the same path: the catalog names it."""

    def __init__(self, folder: Path, name: str, processes: StepProcesses) -> None:
        self.step, self.name, self._processes = STEPS[name], name, processes
        self.home, self._prepared = folder / "home", folder / "prepared"
        self.step.prepare(self.home)
        if self.home.exists():
            shutil.copytree(self.home, self._prepared)
        self.before = read_state(self.home)
        assert processes.run(name, self.home).code == 0
        self.after = read_state(self.home)
        assert self.after != self.before

    def reset(self) -> None:
        """Put the prepared home back."""
        shutil.rmtree(self.home, ignore_errors=True)
        self.home.with_name(ACKNOWLEDGED).unlink(missing_ok=True)
        if self._prepared.exists():
            shutil.copytree(self._prepared, self.home)

    def check(self, *, done: bool) -> None:
        """Check what an interrupted step left, do it again, and check what that left.

        `done`: the step said that it is done.
        """
        left = self._read()
        if self.step.whole:
            assert left in (self.before, self.after), "a part of the step is visible"
        if done:
            assert left == self.after, "what was acknowledged is lost"
        if left != self.before or self.name not in {"creation", "migration"}:
            self._verify()
        if left != self.after or self.step.repeatable:
            again = self._processes.run(self.name, self.home)
            assert again.code == 0, again.words
        assert read_state(self.home) == self.after, "done again, it leaves something else"
        self._verify()

    def _read(self) -> State:
        if self.name == "creation":
            settings = Settings(home=self.home, cluster="test", warehouse={"threads": 1})
            try:
                Warehouse.open(settings).close()
            except WarehouseError as error:
                assert "there is no warehouse" in error.message  # noqa: PT017  (else it is as read)
                return self.before
        return read_state(self.home)

    def _verify(self) -> None:
        if not (self.home / CATALOG_FILE).exists():
            return
        settings = Settings(home=self.home, cluster="test", warehouse={"threads": 1})
        with Warehouse.open(settings) as warehouse:
            damaged = [check for check in verify_warehouse(warehouse) if not check.ok]
        assert damaged == []
