"""A day costs its hours times the price, in every mouth."""

import csv
from datetime import timedelta

import pytest

from tests.field.site import END, HOUR, IDLE, Site, build_node, list_lines, write_time

pytestmark = pytest.mark.long


def test_a_day_costs_its_hours_times_the_price(site: Site) -> None:
    site.set_price(2)
    today = END.replace(hour=0)
    first = (END - today) / HOUR + 24
    assert site.import_objects(build_node("a", 2, born=first + 24)).code == 0
    lines = list_lines("GPU-0", "a", since=first)
    lines += list_lines("GPU-1", "a", gpu=1, values=IDLE, since=first)
    assert site.import_lines(*lines).code == 0
    window = ("--window", f"{write_time(today - timedelta(days=1))}/{write_time(today)}")
    for by in ("state", "node", "model"):
        rows = site.read_json("spend", "--by", by, *window)["spend"]
        assert sum(row["usd"] for row in rows) == 96.0
    report = site.run("report", "finance", "--file", "-", "-o", "focus", *window)
    charges = csv.DictReader(report.out.splitlines())
    assert sum(float(row["EffectiveCost"]) for row in charges) == pytest.approx(96.0)
