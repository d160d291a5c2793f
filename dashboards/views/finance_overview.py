"""Overview: what was paid, what grew, what lay fallow: one page to forward."""

from dashboards import page
from dashboards.page import Asked
from dashboards.views.finance_spend import month, over_time

TITLE, ICON, ORDER = "Overview", ":material/home:", 0


def show(asked: Asked) -> None:
    """Draw the page."""
    page.card(month, asked)
    page.card(over_time, asked)
