"""The shell's time zone changes no answer."""

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from tests.field.site import END, HOUR, Site, list_lines, write_time

MAIN = "from runtime.cli import main; main()"
SPAN_H = 30


def read_spend(site: Site, zone: str, window: str) -> dict[str, Any]:
    """Return what a process of a shell in this zone prints."""
    words = ("spend", "--by", "state", "--window", window, "-o", "json", "--home", str(site.home))
    ended = subprocess.run(
        [sys.executable, "-c", MAIN, *words],
        env={**os.environ, "TZ": zone},
        capture_output=True,
        check=True,
        text=True,
    )
    spend: dict[str, Any] = json.loads(ended.stdout)
    return spend


@pytest.mark.long
def test_each_zone_gets_the_same_month_and_the_same_hours(site: Site) -> None:
    lines = list_lines("GPU-0", "a", pod="train", namespace="ml", since=SPAN_H)
    assert site.import_lines(*lines).code == 0
    month = END.replace(day=1, hour=0)
    hours = min(SPAN_H, (END - month) / HOUR)
    for zone in ("UTC", "America/New_York", "Pacific/Auckland"):
        spend = read_spend(site, zone, "month")
        assert spend["window"]["start"] == write_time(month), zone
        assert float(spend["total"]["gpu_hours"]) == pytest.approx(hours, abs=0.02), zone
