"""A table of prices that is refreshed prices no hour anew that has a price."""

import pytest

from tests.field.site import HOURS, Site, list_lines

HEADER = (
    "provider,region,instance_type,gpu_model,gpu_count,vcpu,memory_gib,term,usd_per_hour,as_of,"
    "reference,confirmed"
)


@pytest.mark.long
def test_closed_hours_keep_their_price_when_the_table_is_refreshed(site: Site) -> None:
    card, settings = site.folder / "card.csv", site.folder / "fallow.yaml"
    settings.write_text(f"prices: {{rate_card: {card}}}")
    for usd in (5, 4, 5, 4):
        offer = f"aws,us-east-1,p5.4xlarge,H100,1,16,256,on-demand,{usd},2026-07-20,list,yes"
        card.write_text(f"{HEADER}\n{offer}\n")
        answer = site.import_lines(*list_lines("GPU-0", "a"), config=settings)
        assert answer.code == 0, answer.err
        [row] = site.query("SELECT sum(usd)::DOUBLE AS usd FROM ledger")
        assert row["usd"] == HOURS * 5
