"""Situations of a Prometheus: one real server with the series of all, and one home."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.field.homes import Home, check_situation, list_names, list_parameters, load_situations
from tests.field.site import Fallow
from tests.servers.prometheus import blocks, serving


@pytest.fixture(scope="module")
def scraped_home(
    request: pytest.FixtureRequest, shared_fallow: tuple[Fallow, Path]
) -> Iterator[Home]:
    """Yield a home that has read each situation's series from one Prometheus."""
    fallow, folder = shared_fallow
    names = list_names(request)
    text = "".join(
        scrape.write(name) for name in names for scrape in load_situations()[name].scrapes
    )
    with serving(blocks(f"{text}# EOF\n", folder / "prometheus")) as url:
        yield Home(fallow, folder, names, url)


@pytest.mark.parametrize("name", list_parameters(lambda situation: bool(situation.scrapes)))
def test_scraped_situation(name: str, scraped_home: Home) -> None:
    check_situation(scraped_home, name)
