"""No words of a what-if on the page Queues are cut off, on a laptop and on a phone."""

from collections.abc import Callable

import pytest

from dashboards import app
from tests.browser.visiting import Visitor

pytestmark = [pytest.mark.xdist_group("browser"), pytest.mark.timeout(900)]
CUT_OFF = """
() => [...document.querySelectorAll('[data-testid=stMain] *')]
  .filter(e => e.scrollWidth > e.clientWidth + 1 && getComputedStyle(e).overflowX !== 'visible')
  .map(e => e.tagName === 'INPUT' ? e.value : e.children.length ? '' : e.textContent.trim())
  .filter(words => words)
"""
"""Texts and the values of fields that are wider than their boxes."""


def test_the_words_of_a_what_if_are_whole(visitors: Callable[..., Visitor]) -> None:
    page = visitors().go(app.build_url_path("queues"), window="2d", show="what if")
    for width in (1280, 390):
        page.set_viewport_size({"width": width, "height": 900})
        assert page.get_by_text("A pool: all nodes of a model have so many GPUs.").count() == 1
        assert page.evaluate(CUT_OFF) == []
