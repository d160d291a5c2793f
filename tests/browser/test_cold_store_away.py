"""A page in a browser while the archived days of its window are not readable."""

import pytest
from playwright.sync_api import Browser

from tests.archived import build
from tests.browser.serving import dashboard, free_port
from tests.browser.visiting import Visitor

pytestmark = [pytest.mark.xdist_group("browser"), pytest.mark.timeout(900)]


def test_totals_are_unknown_and_the_chart_has_the_readable_days(
    browser: Browser, tmp_path_factory: pytest.TempPathFactory
) -> None:
    place = tmp_path_factory.mktemp("away")
    cold = place / "mount"
    settings, config = build(place, cold=str(cold))
    cold.rename(place / "disk")
    cold.mkdir()
    given = {"home": str(settings.home), "cluster": "test", "warehouse": {"cold": str(cold)}}
    assert config.exists()
    with dashboard(place, given, free_port()) as url, Visitor(browser, url) as visitor:
        page = visitor.go("quality", window="2026-11-05/2026-11-16")
        answer = visitor.alerts("Warning")
        unknown = [text for text in answer if "not readable" in text]
        assert len(unknown) >= 2, "in place of the totals, and above the chart"
        for text in unknown:
            assert "unknown: 2 days not readable (2026-11-05 to 2026-11-06)" in text
        assert page.locator("[data-testid=stMetric]").count() == 0
        assert page.locator("[data-testid=stVegaLiteChart]").count() == 1
        page = visitor.go("quality", window="2026-11-13/2026-11-15")
        assert not [text for text in visitor.alerts("Warning") if "not readable" in text]
        assert page.locator("[data-testid=stMetric]").count() == 4
