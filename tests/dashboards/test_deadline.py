"""A query of a page that takes too long ends at its deadline, and the page says so."""

import sys
from datetime import timedelta

import pytest
from streamlit.testing.v1 import AppTest

from dashboards import active_settings
from fallow.settings import Settings


def draw_a_query_without_end() -> None:
    from dashboards import data, page  # noqa: PLC0415  (Streamlit runs this function's text)

    def show() -> None:
        data.query(lambda views: views.query("SELECT sum(i) FROM range(1000000000000) AS t(i)"))

    page.guard(show)


def test_a_query_without_end_is_said_on_the_page_which_can_try_again(
    empty: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Streamlit leaves the page as the main module, which new processes would then run.
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])
    within = empty.warehouse.model_copy(update={"query_within": timedelta(seconds=0.5)})
    active_settings.use_settings(empty.model_copy(update={"warehouse": within}))
    page = AppTest.from_function(draw_a_query_without_end, default_timeout=60).run()
    assert not page.exception
    [warning] = page.warning
    assert "took more than 0.5 s and was ended" in warning.value.replace("\\", "")
    assert "warehouse.query_within" in warning.value.replace("\\", "")
    assert [button.label for button in page.button] == ["Try again"]
