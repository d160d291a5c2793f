"""Two days of jobs of several sizes."""

from typing import Any

import pytest

from tests.analyzers.stepped import Stepped


@pytest.fixture
def stepped(views: Any) -> Stepped:
    return Stepped(views)


@pytest.fixture
def make_stepped(make_site: Any) -> Any:
    return lambda: Stepped(make_site().views)
