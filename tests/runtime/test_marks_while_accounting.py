"""What arrives while the ledger is written is accounted by the next pass, not forgotten."""

from collections.abc import Callable
from typing import Any
from unittest import mock

import pytest

from fallow.settings import Settings
from fallow.window import Window
from runtime.operations.accounting import pipeline
from tests.runtime.test_owners_known_later import FIRST, NOW, SECOND, by, owned, pod, samples
from warehouse import dirty
from warehouse.lake import Warehouse

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("step", ["write_allocations", "write_ledger_stage", "audit_stage"])
def test_an_owner_that_comes_while_its_hours_are_written_has_them_after_the_next_pass(
    settings: Settings, step: str
) -> None:
    write: Callable[..., Any] = getattr(pipeline, step)

    def write_and_receive(warehouse: Warehouse, part: Window, **named: Any) -> Any:
        written = write(warehouse, part, **named)
        # As a collector does beside it: the pod has had a team for ten hours.
        pipeline.ingest(warehouse, [pod(FIRST, **owned(team="search"))])
        return written

    with Warehouse.open(settings, write=True, clock=lambda: NOW) as warehouse:
        pipeline.ingest(warehouse, [samples(FIRST, "web-a"), pod(FIRST, **owned())])
        with mock.patch.object(pipeline, step, write_and_receive):
            pipeline.account(warehouse, FIRST)
        assert by(warehouse, "team") == {"ml": 2.0}
        pipeline.account(warehouse, SECOND)
        assert by(warehouse, "team") == {"search": 2.0}
        assert warehouse.query("FROM unposted").num_rows == 0


def test_hours_of_an_accounting_that_died_are_accounted_by_the_next_one(
    settings: Settings,
) -> None:
    with Warehouse.open(settings, write=True, clock=lambda: NOW) as warehouse:
        pipeline.ingest(warehouse, [samples(FIRST, "web-a"), pod(FIRST, **owned())])
        with (
            mock.patch.object(pipeline, "write_ledger_stage", side_effect=KeyboardInterrupt),
            pytest.raises(KeyboardInterrupt),
        ):
            pipeline.account(warehouse, FIRST)
    with Warehouse.open(settings, write=True, clock=lambda: NOW) as warehouse:
        assert dirty.list_marked_windows(warehouse, SECOND)[0].start <= FIRST.start
        pipeline.account(warehouse, SECOND)
        assert by(warehouse, "team") == {"ml": 2.0}
        assert warehouse.query("FROM unposted").num_rows == 0
