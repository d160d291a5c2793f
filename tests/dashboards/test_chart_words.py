"""What charts and tables say in words: legends, units, counts, and what is unknown."""

import json
from decimal import Decimal
from typing import Any

import pyarrow as pa

from dashboards import charts, maps, page


def draw(chart: Any) -> str:
    """Return a chart as the browser gets it."""
    return json.dumps(chart.to_dict())


def test_a_waterfall_has_amounts_of_three_digits_and_says_where_no_price_is_known() -> None:
    steps = [
        {"name": name, "low": 0.0, "high": 1.0, "amount": amount, "colour": charts.BLUE}
        for name, amount in (("paid", 21504.0), ("free", 2367.2), ("lost", 9.79), ("idle", None))
    ]
    drawn = draw(charts.draw_waterfall(steps, "GPU-hours"))
    for text in ("21.5k", "2.37k", "9.79", "no price"):
        assert f'"said": "{text}"' in drawn


def test_idle_parts_of_bars_are_named_in_a_legend() -> None:
    rows = [{"name": "nb-1", "usd": 3.0, "idle": 1.0}]
    assert '"domain": ["of it idle", "the rest"]' in draw(
        charts.draw_ranked_bars(rows, part="idle")
    )
    assert "of it idle" not in draw(charts.draw_ranked_bars(rows))


def test_a_pool_of_one_node_is_not_called_nodes() -> None:
    cell = {"cluster": "c", "pool": "h100", "gpus": 1, "state": "idle", "usd_h": 1.0}
    one = [{**cell, "node": "n-1", "workload": "w"}]
    assert "h100  (1 node, 1 GPU)" in draw(maps.draw_cells(one))
    assert "h100  (2 nodes, 2 GPUs)" in draw(maps.draw_cells([*one, {**one[0], "node": "n-2"}]))


def test_a_short_column_has_room_for_unknown() -> None:
    part = page.configure_percent("busy")
    known, unknown = pa.chunked_array([[1.0]]), pa.chunked_array([[1.0, None]])
    assert page._configure(part, known)["width"] is None
    assert page._configure(part, unknown)["width"] == "small"
    assert page._configure(page.configure_usd("USD"), unknown)["width"] == "small"
    assert page._configure(page.configure_usd("saves, USD a day"), unknown)["width"] is None


def test_an_axis_of_cents_has_no_prefix_that_reads_as_a_million() -> None:
    bars = [{"low": 0.05, "high": 0.1, "units": 3, "colour": charts.BLUE, "said": "0.10"}]
    spec = charts.cost_histogram(bars, "USD per million", "jobs").to_dict()
    assert spec["encoding"]["x"]["axis"]["format"] == "$.3~g"
    large = [bars[0] | {"high": 2000.0}]
    spec = charts.cost_histogram(large, "USD per million", "jobs").to_dict()
    assert spec["encoding"]["x"]["axis"]["format"] == "$,~f"
    forms = (
        (None, ".3~g"), (Decimal("9.99"), ".3~g"), (Decimal(10), ",~f"), (Decimal(9_999), ",~f"),
        (Decimal(10_000), "~s"),
    )  # fmt: skip
    for usd, form in forms:
        spec = charts.draw_ranked_bars([{"name": "a", "usd": usd}]).to_dict()
        assert spec["encoding"]["x"]["axis"]["format"] == form
