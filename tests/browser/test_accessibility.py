"""Pages of each kind, looked at by axe-core: nothing serious, light and dark."""

from collections.abc import Callable

import pytest
from axe_playwright_python.sync_playwright import Axe

from dashboards import app
from tests.browser.visiting import Visitor

pytestmark = [pytest.mark.xdist_group("browser"), pytest.mark.timeout(900)]
EXCLUDED = {
    "list": "the sections of Streamlit's navigation are no list items",
    "listitem": "the links of Streamlit's navigation are in a div between list and item",
}
"""Rules that only elements of Streamlit itself break, and why."""
OURS = "[data-testid=stMain]"


KINDS = ("", "spend", "findings")
"""Cards, tabs and tables with charts, rows to choose: the other pages consist of the same parts."""
PATHS = ["", *(app.build_url_path(view) for view in app.list_names()[1:])]


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize(
    "path",
    # KINDS cover the others.
    [p if p in KINDS else pytest.param(p, marks=pytest.mark.long) for p in PATHS],
)
def test_axe_finds_nothing_serious(
    path: str, scheme: str, visitors: Callable[..., Visitor]
) -> None:
    visitor = visitors() if scheme == "light" else visitors(color_scheme=scheme)
    for width in (1280, 390):
        visitor.page.set_viewport_size({"width": width, "height": 900})
        page = visitor.go(path, window="2d")
        violations = Axe().run(page).response["violations"]
        serious = [v for v in violations if v["impact"] in ("serious", "critical")]
        unknown = [v for v in serious if v["id"] not in EXCLUDED]
        assert not [(path, v["id"], [n["html"] for n in v["nodes"]]) for v in unknown]
        for violation in serious:
            for node in violation["nodes"]:
                assert page.locator(OURS, has=page.locator(node["target"][0])).count() == 0
