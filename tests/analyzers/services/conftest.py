"""Two days of services whose servers tell histograms."""

from typing import Any

import pytest

from tests.analyzers.served import Served


@pytest.fixture
def served(views: Any) -> Served:
    return Served(views)


@pytest.fixture
def make_served(make_site: Any) -> Any:
    return lambda: Served(make_site().views)
