"""Words and links can be read on both pages, as WCAG 2.2 computes it."""

import tomllib

import pytest

from dashboards.serving import CONFIG
from tests.dashboards.test_pages import contrast

THEME = tomllib.loads(CONFIG.read_text(encoding="utf-8"))["theme"]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("colour", ["textColor", "primaryColor"])
@pytest.mark.parametrize("behind", ["backgroundColor", "secondaryBackgroundColor"])
def test_words_and_links_can_be_read(scheme: str, colour: str, behind: str) -> None:
    assert contrast(THEME[scheme][colour], THEME[scheme][behind]) >= 4.5
