"""Dollars that nobody can be charged stay in the total."""

import pytest

from tests.field.site import END, FREE, HOURS, Site, ago, build_node, list_lines, write_time

pytestmark = pytest.mark.long


def test_free_dollars_without_an_owner_stay(site: Site) -> None:
    (site.folder / "fallow.yaml").write_text("prices: {usd_per_gpu_hour: 2}\n")
    assert site.import_objects(build_node("a", 2)).code == 0
    lines = [line for k in (0, 1) for line in list_lines(f"GPU-{k}", "a", gpu=k, values=FREE)]
    assert site.import_lines(*lines).code == 0
    words = ("spend", "--by", "team", "--window", f"{write_time(ago(HOURS))}/{write_time(END)}")
    for more in ((), ("--share-unallocated",)):
        spend = site.read_json(*words, *more)
        assert spend["total"]["usd"] == 24.0
        assert {row["team"]: row["usd"] for row in spend["spend"]} == {"(platform)": 24.0}
