"""A small warehouse, made once; one of hostile names; one that is empty."""

from collections.abc import Iterator

import pytest

from fallow.settings import Settings
from tests.reports.small import HOSTILE, fill, rows
from warehouse.lake import Warehouse


@pytest.fixture(scope="session")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """Return the settings of the small warehouse."""
    return fill(tmp_path_factory.mktemp("fleet") / "home", rows())


@pytest.fixture(scope="session")
def views(fleet: Settings) -> Iterator[Warehouse]:
    """Return the small warehouse, open for reading."""
    with Warehouse.open(fleet) as warehouse:
        yield warehouse


@pytest.fixture(scope="session")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Warehouse]:
    """Return a warehouse whose teams and workloads have hostile names."""
    settings = fill(tmp_path_factory.mktemp("hostile") / "home", rows(HOSTILE))
    with Warehouse.open(settings) as warehouse:
        yield warehouse
