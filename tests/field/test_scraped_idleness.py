"""Situations of a Prometheus in which something is idle, half of all: one home."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.field.homes import Homes, check_situation, list_parameters
from tests.field.scraped import serve_homes
from tests.field.site import Fallow

pytestmark = pytest.mark.timeout(1800)  # the first test of a kind makes its home


@pytest.fixture(scope="module")
def scraped_homes(
    request: pytest.FixtureRequest, shared_fallow: tuple[Fallow, Path]
) -> Iterator[Homes]:
    """Yield this file's homes."""
    with serve_homes(request, *shared_fallow) as homes:
        yield homes


@pytest.mark.parametrize("name", list_parameters(lambda each: each.kind == "S"))
def test_scraped_idleness(name: str, scraped_homes: Homes) -> None:
    check_situation(scraped_homes, name)
