"""Warehouses that pages are drawn from: the demo's, one of hostile names, one that is empty."""

from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("streamlit", reason="the dashboard is an extra: fallow[dashboards]")

from streamlit.testing.v1 import AppTest

from dashboards import active_settings
from fallow.settings import Settings
from runtime.experiments import demo_plants
from tests.dashboards.drawing import DAYS, GPUS, HOSTILE, Draw, hostile_rows, stored
from tests.demo_homes import copy_demo
from warehouse.lake import Warehouse


@pytest.fixture(scope="session")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """Return the settings of the demo's warehouse, which every analyzer judged."""
    folder = tmp_path_factory.mktemp("fleet")
    home = copy_demo(tmp_path_factory, folder / "home", days=DAYS, gpus=GPUS)
    return Settings(home=home, cluster=demo_plants.CLUSTER)


@pytest.fixture(scope="session")
def views(fleet: Settings) -> Iterator[Warehouse]:
    """Return the demo's warehouse, open for reading."""
    with Warehouse.open(fleet) as warehouse:
        yield warehouse


@pytest.fixture
def empty(tmp_path: Path) -> Settings:
    """Return the settings of a warehouse that holds nothing."""
    settings = Settings(home=tmp_path / "empty")
    with Warehouse.open(settings, write=True):
        pass
    return settings


@pytest.fixture(scope="session")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """Return the settings of a warehouse whose every name is hostile."""
    settings = Settings(home=tmp_path_factory.mktemp("hostile") / "home")
    with Warehouse.open(settings, write=True) as warehouse:
        stored(warehouse, *hostile_rows(HOSTILE))
    return settings


@pytest.fixture
def draw() -> Draw:
    """Return a function that draws a page, or `page/tab`, with parameters of the URL."""

    def drawn(view: str, settings: Settings, /, **query: str) -> AppTest:
        active_settings.use_settings(settings)
        view, _, tab = view.partition("/")
        if tab:
            query["tab"] = tab
        page = AppTest.from_string(
            f"from dashboards.app import draw_page\ndraw_page({view!r})", default_timeout=120
        )
        for name, value in query.items():
            page.query_params[name] = value
        return page.run()

    return drawn
