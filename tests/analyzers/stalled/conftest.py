"""Gangs of one cluster, none yet."""

from typing import Any

import pytest

from tests.analyzers.gangs import Gangs


@pytest.fixture
def gangs(views: Any) -> Gangs:
    return Gangs(views)
