"""My workloads: what they cost, what will happen to them and when, and what would help them."""

from dashboards import action_buttons, tabs
from dashboards.page import PageRequest
from dashboards.views import mine_coming, mine_hints, mine_workloads

TITLE, ICON = "Mine", ":material/work:"
TABS: tabs.Tabs = {
    "Workloads": mine_workloads.show,
    "What is coming": mine_coming.show,
    "Hints": mine_hints.show,
}


def show(request: PageRequest) -> None:
    """Draw the page."""
    action_buttons.show_result()
    tabs.show_tabs(
        TABS, request, {"case": "What is coming", "action": "What is coming", "hint": "Hints"}
    )
