"""A spot node whose price nobody says costs an estimate below on-demand, marked in every bill."""

import csv

from tests.field.site import (
    HOURS,
    WINDOW,
    Site,
    build_node,
    label_instance,
    list_lines,
)

NOTE = (
    "2.47 USD are estimates, of 6.0 GPU-hours on spot nodes without a known price: the on-demand "
    "price less the published discount (docs/prices.md)"
)
MODEL = "NVIDIA A10G"


def test_spot_without_a_price_is_an_estimate_below_on_demand_and_marked(site: Site) -> None:
    labels = label_instance("g5.xlarge")
    spot = labels | {"karpenter.sh/capacity-type": "spot"}
    nodes = [build_node("a", 1, labels=labels), build_node("b", 1, labels=spot)]
    assert site.import_objects(*nodes).code == 0
    lines = [list_lines(f"GPU-{node}", node, modelName=MODEL) for node in "ab"]
    assert site.import_lines(*lines[0], *lines[1]).code == 0

    spend = site.read_json("spend", "--by", "node", *WINDOW)
    rows = {row["node"]: (row["usd"], row["estimated_gpu_hours"]) for row in spend["spend"]}
    assert rows == {"a": (6.04, 0.0), "b": (2.47, HOURS)}
    assert spend["total"]["usd"] == 8.51
    assert NOTE in site.run("spend", *WINDOW).err
    finance = ("report", "finance", "--file", "-", *WINDOW)
    assert NOTE in site.run(*finance, "-o", "md").out
    focus = site.run(*finance, "-o", "focus")
    charges = {
        (row["ResourceName"], row["PricingCategory"], row["x_PriceBasis"])
        for row in csv.DictReader(focus.out.splitlines())
    }
    assert charges == {("a", "Standard", "Rate"), ("b", "Dynamic", "Estimate")}
