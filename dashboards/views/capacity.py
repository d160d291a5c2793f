"""Capacity: free GPUs that no pod can use, node pools, spot nodes, and demand."""

from dashboards import tabs
from dashboards.page import PageRequest
from dashboards.views import (
    capacity_demand,
    capacity_fragmentation,
    capacity_pools,
    capacity_spot,
)

TITLE, ICON = "Capacity", ":material/dns:"
TABS: tabs.Tabs = {
    "Fragmentation": capacity_fragmentation.show,
    "Node pools": capacity_pools.show,
    "Spot": capacity_spot.show,
    "Demand": capacity_demand.show,
}


def show(request: PageRequest) -> None:
    """Draw the page."""
    tabs.show_tabs(TABS, request)
