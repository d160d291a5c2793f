"""Without a price of its own a node costs an estimate, marked in every bill."""

import csv
from itertools import chain

from tests.field.site import (
    HOURS,
    WINDOW,
    Site,
    build_node,
    label_instance,
    list_lines,
)

NOTE = (
    "14.55 USD are estimates, of 18.0 GPU-hours without a price of their own: of another region, "
    "on demand (spot: less the published discount) or of the GPU model (docs/prices.md)"
)
MODEL = "NVIDIA A10G"


def test_what_has_no_price_of_its_own_is_an_estimate_and_marked(site: Site) -> None:
    labels = label_instance("g5.xlarge")
    labels_by_node = {
        "a": labels,
        "b": labels | {"karpenter.sh/capacity-type": "spot"},
        "c": label_instance("of-the-site"),
        "d": label_instance("g5.xlarge", region="eu-west-1"),
    }
    nodes = [build_node(name, 1, labels=labels) for name, labels in labels_by_node.items()]
    assert site.import_objects(*nodes).code == 0
    lines = [list_lines(f"GPU-{node}", node, modelName=MODEL) for node in labels_by_node]
    assert site.import_lines(*chain.from_iterable(lines)).code == 0

    spend = site.read_json("spend", "--by", "node", *WINDOW)
    rows = {row["node"]: (row["usd"], row["estimated_gpu_hours"]) for row in spend["spend"]}
    assert rows == {"a": (6.04, 0.0), "b": (2.47, HOURS), "c": (6.04, HOURS), "d": (6.03, HOURS)}
    assert NOTE in site.run("spend", *WINDOW).err
    finance = ("report", "finance", "--file", "-", *WINDOW)
    assert NOTE in site.run(*finance, "-o", "md").out
    focus = site.run(*finance, "-o", "focus")
    charges = {
        (row["ResourceName"], row["PricingCategory"], row["x_PriceBasis"])
        for row in csv.DictReader(focus.out.splitlines())
    }
    assert charges == {
        ("a", "Standard", "Rate"),
        ("b", "Dynamic", "Estimate"),
        ("c", "Standard", "Estimate"),
        ("d", "Standard", "Estimate"),
    }
