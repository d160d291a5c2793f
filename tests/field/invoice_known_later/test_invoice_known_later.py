"""An invoice that is known later prices the hours that it names, and the change is told."""

import pytest

from tests.field.site import HOURS, Site, ago, list_lines, write_time


@pytest.mark.long
def test_hours_cost_what_the_invoice_says_and_the_change_is_listed(site: Site) -> None:
    settings = site.folder / "fallow.yaml"
    settings.write_text("{}")
    assert site.import_lines(*list_lines("GPU-0", "a"), config=settings).code == 0
    total = "SELECT sum(usd)::DOUBLE AS usd FROM ledger"
    assert site.query(total) == [{"usd": pytest.approx(HOURS * 6.88)}]
    since = write_time(ago(HOURS + 1))
    settings.write_text(f"prices: {{usd_per_gpu_hour: 2.58, valid_from: {since}}}")
    assert site.import_lines(*list_lines("GPU-0", "a"), config=settings).code == 0
    upgraded = site.run("warehouse", "upgrade", "--restate", "--config", settings)
    assert upgraded.code == 0, upgraded.err
    assert site.query(total) == [{"usd": pytest.approx(HOURS * 2.58)}]
    rows = site.query("SELECT cause, usd_before, usd_after FROM restatement")
    assert {row["cause"] for row in rows} == {"price"}
    change = sum(float(row["usd_before"]) - float(row["usd_after"]) for row in rows)
    assert change == pytest.approx(HOURS * (6.88 - 2.58))
