"""Situations of a Prometheus in which something is idle, half of all: one home."""

import pytest

from tests.field.homes import Homes, check_situation, list_parameters
from tests.field.scraped import scraped_homes as scraped_homes  # noqa: PLC0414  (a fixture)

pytestmark = pytest.mark.timeout(1800)  # the first test of a kind makes its home


@pytest.mark.parametrize("name", list_parameters(lambda each: each.kind == "S"))
def test_scraped_idleness(name: str, scraped_homes: Homes) -> None:
    check_situation(scraped_homes, name)
