"""A window within an hour is the whole hour, and the answer says so."""

from datetime import timedelta

import pytest

from tests.field.site import Site, ago, build_node, list_lines, write_time

pytestmark = pytest.mark.long


def test_fifteen_minutes_count_as_their_hour(site: Site) -> None:
    assert site.import_objects(build_node("a", 1)).code == 0
    assert site.import_lines(*list_lines("GPU-0", "a")).code == 0
    start = ago(2) + timedelta(minutes=15)
    window = f"{write_time(start)}/{write_time(start + timedelta(minutes=15))}"
    spend = site.read_json("spend", "--window", window)
    assert spend["total"]["gpu_hours"] == 1.0
    assert spend["window"] == {"start": write_time(ago(2)), "end": write_time(ago(1))}
    words = site.run("spend", "--window", window).err
    assert f"{ago(2):%Y-%m-%d %H:%M}" in words
    assert f"{ago(1):%H:%M}" in words
