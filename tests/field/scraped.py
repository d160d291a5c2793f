"""Homes that have read the series of a test file's situations from one real Prometheus."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.field.homes import Homes, list_names, load_situations
from tests.field.site import Fallow
from tests.servers.prometheus import blocks, serving


@pytest.fixture(scope="module")
def scraped_homes(
    request: pytest.FixtureRequest, shared_fallow: tuple[Fallow, Path]
) -> Iterator[Homes]:
    """Yield the homes of a test file while their Prometheus runs."""
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
