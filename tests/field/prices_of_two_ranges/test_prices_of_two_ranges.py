"""Two prices of an owned server hold for their ranges of dates."""

import json

import pytest

from tests.field.site import Site, ago, list_lines, write_time


@pytest.mark.long
def test_each_range_has_its_price(site: Site) -> None:
    server = {"gpus": 1, "years": 1, "availability": 1}
    since = write_time(ago(3))
    both = [{**server, "capex_usd": 17520}, {**server, "capex_usd": 26280, "valid_from": since}]
    settings = site.folder / "fallow.yaml"
    settings.write_text(json.dumps({"prices": {"on_prem": both}}))
    answer = site.import_lines(*list_lines("GPU-0", "a"), config=settings)
    assert answer.code == 0, answer.err
    [row] = site.query("SELECT sum(usd)::DOUBLE AS usd FROM ledger")
    assert row["usd"] == 3 * 2 + 3 * 3
