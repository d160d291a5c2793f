"""Golden documents: what a small site's looks become as `fallow.findings/v1`.

Each folder of `golden/` holds a site and its findings. After an intended change write the new
documents with FALLOW_GOLDEN=write and read the difference.
"""

import json
import os
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from actions.recommend import add_recommendations
from analyzers.idle.analyzer import IdleAnalyzer
from fallow.window import Window
from runtime.operations.analysis.findings import document

GOLDEN = Path(__file__).parent / "golden"
Site = Any


@pytest.mark.parametrize("case", sorted(p.name for p in GOLDEN.iterdir()))
def test_a_site_becomes_its_document(case: str, site: Site) -> None:
    given = json.loads((GOLDEN / case / "site.json").read_text())
    for device in given["devices"]:
        values = [value for value, count in device.pop("values") for _ in range(count)]
        site.device(values=values, **device)
    for held in given["holds"]:
        site.holds(**held)
    for notebook in given["notebooks"]:
        site.notebook(**notebook)
    site.price(given["price"])
    window = Window(site.start, site.start + timedelta(days=1))
    found = add_recommendations(IdleAnalyzer().find(site.views, window))
    made = {"schema": "fallow.findings/v1", "findings": [document(f) for f in found]}
    path = GOLDEN / case / "findings.json"
    if os.environ.get("FALLOW_GOLDEN") == "write":
        path.write_text(json.dumps(made, indent=2) + "\n")
    assert made == json.loads(path.read_text())
