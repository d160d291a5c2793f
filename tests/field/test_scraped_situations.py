"""Situations of a Prometheus: one real server with the series of all, and a home a kind."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.field.homes import Homes, check_situation, list_names, list_parameters, load_situations
from tests.field.site import Fallow
from tests.servers.prometheus import blocks, serving

pytestmark = pytest.mark.timeout(1800)  # the first test of a kind makes its home


@pytest.fixture(scope="module")
def scraped_homes(
    request: pytest.FixtureRequest, shared_fallow: tuple[Fallow, Path]
) -> Iterator[Homes]:
    """Yield homes that have read each situation's series from one Prometheus."""
    fallow, folder = shared_fallow
    names = list_names(request)
    # Pods of one job show one job: the same series once.
    text = "".join(
        dict.fromkeys(
            scrape.write(name) for name in names for scrape in load_situations()[name].scrapes
        )
    )
    with serving(blocks(f"{text}# EOF\n", folder / "prometheus")) as url:
        yield Homes(fallow, folder, names, url)


@pytest.mark.parametrize("name", list_parameters(lambda situation: bool(situation.scrapes)))
def test_scraped_situation(name: str, scraped_homes: Homes) -> None:
    check_situation(scraped_homes, name)
