"""Homes that have read the series of a test file's situations from one real Prometheus."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.field.homes import Homes, list_names, load_situations
from tests.field.site import Fallow
from tests.servers.prometheus import blocks, serving


@contextmanager
def serve_homes(request: pytest.FixtureRequest, fallow: Fallow, folder: Path) -> Iterator[Homes]:
    """Yield the homes while their Prometheus runs."""
    names = list_names(request)
    # Pods of one job show one job: the same series once.
    text = "".join(
        dict.fromkeys(
            scrape.write(name) for name in names for scrape in load_situations()[name].scrapes
        )
    )
    with serving(blocks(f"{text}# EOF\n", folder / "prometheus")) as url:
        yield Homes(fallow, folder, names, url)
