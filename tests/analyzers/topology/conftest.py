"""The fleet by the hour, empty."""

from typing import Any

import pytest

from tests.analyzers.hourly import Hours


@pytest.fixture
def hours(views: Any) -> Hours:
    return Hours(views)
