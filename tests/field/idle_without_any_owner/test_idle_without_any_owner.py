"""Dollars that nobody can be charged stay in the total."""

import pytest

from tests.field.site import FREE, WINDOW, Site, build_node, list_lines

pytestmark = pytest.mark.long


def test_free_dollars_without_an_owner_stay(site: Site) -> None:
    site.set_price(2)
    assert site.import_objects(build_node("a", 2)).code == 0
    lines = [line for k in (0, 1) for line in list_lines(f"GPU-{k}", "a", gpu=k, values=FREE)]
    assert site.import_lines(*lines).code == 0
    words = ("spend", "--by", "team", *WINDOW)
    for more in ((), ("--share-unallocated",)):
        spend = site.read_json(*words, *more)
        assert spend["total"]["usd"] == 24.0
        assert {row["team"]: row["usd"] for row in spend["spend"]} == {"(platform)": 24.0}
