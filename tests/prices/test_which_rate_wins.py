"""Which of several rates prices a device: the list of docs/prices.md."""

from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from tests.ledger.conftest import LedgerBuilders, Tables
from warehouse.allocation import write_allocations
from warehouse.ledger import write_ledger
from warehouse.pricing import derive_device_rates

KIT: Any = LedgerBuilders
NODE: dict[str, Any] = {
    "cluster": "c",
    "node": "n",
    "provider": "aws",
    "region": "us-east-1",
    "zone": "us-east-1a",
    "instance_type": "p5.48xlarge",
    "capacity_type": "on-demand",
    "gpu_count": 8,
    "first_seen": KIT.at(0),
    "last_seen": KIT.at(0),
}
TYPE: dict[str, Any] = {"instance_type": "p5.48xlarge", "gpu_model": "H100", "gpu_count": 8}
AWS: dict[str, Any] = {"provider": "aws", "source": "rate-card", "region": "us-east-1", **TYPE}
ON_PREM: dict[str, Any] = {
    "provider": "on-prem",
    "source": "on-prem",
    "term": "amortised",
    "region": "",
}
SPOT: dict[str, Any] = {**AWS, "source": "aws-spot", "term": "spot", "zone": "us-east-1a"}
ESTIMATE: dict[str, Any] = {**AWS, "source": "spot-estimate", "term": "spot", "usd": "4"}
DERIVED: dict[str, Any] = {"provider": "derived", "source": "derived", "gpu_model": "H100"}
RANKED: list[tuple[int, dict[str, Any]]] = [
    (1, {"cluster": "c", "source": "import"}),
    (2, {"cluster": "c", "gpu_model": "H100"}),
    (3, {"cluster": "c"}),
    (4, {**ON_PREM, "cluster": "c"}),
    (5, {**AWS, "zone": "us-east-1a"}),
    (6, AWS),
    (7, {**AWS, "region": "us-west-2"}),
    (14, DERIVED),
]
"""What prices an on-demand node, the best first; ranks 8 to 13 are for other nodes."""


def priced(rates: list[dict[str, Any]], minutes: float = 60, **node: Any) -> list[tuple[Any, ...]]:
    tables: Any = Tables()
    tables.put("device", [KIT.device("d", minutes)])
    tables.put("node", [NODE | {"last_seen": KIT.at(minutes)} | node])
    tables.put("rate", [KIT.flat_rate(r.pop("usd", "8"), **r) for r in map(dict, rates)])
    rows = derive_device_rates(tables, KIT.window(0, minutes)).to_pylist()
    return [(r["rank"], r["loaded_usd_h"]) for r in rows]


@pytest.mark.parametrize("best", range(len(RANKED)))
def test_the_lowest_rank_prices_whatever_else_is_offered(best: int) -> None:
    offers = [{**rate, "usd": str(8 * (n + 1))} for n, (_, rate) in enumerate(RANKED)]
    rank, rate = RANKED[best]
    usd = 8.0 * (best + 1) / rate.get("gpu_count", 1)
    assert priced(offers[best:]) == [(rank, usd)]


@pytest.mark.parametrize(
    ("node", "offers", "won"),
    [
        ({"capacity_type": "spot"}, [{**SPOT, "usd": "16"}, {**AWS, "usd": "55"}], (5, 2.0)),
        ({"capacity_type": "spot"}, [{**SPOT, "zone": "us-east-1b"}, AWS], (6, 1.0)),
        ({"capacity_type": "spot"}, [ESTIMATE, AWS], (8, 0.5)),
        ({"capacity_type": "spot"}, [ESTIMATE, {**SPOT, "region": "us-west-2"}], (7, 1.0)),
        ({"capacity_type": "spot"}, [{**ESTIMATE, "region": "us-west-2"}, AWS], (9, 0.5)),
        ({"capacity_type": "spot"}, [AWS], (10, 1.0)),
        ({"capacity_type": "spot"}, [{**AWS, "region": "us-west-2"}], (11, 1.0)),
        ({}, [{**SPOT, "usd": "16"}, {**AWS, "usd": "56"}], (6, 7.0)),
        ({}, [ESTIMATE, {**AWS, "usd": "56"}], (6, 7.0)),
        (
            {"capacity_type": "reserved"},
            [{**AWS, "source": "commitment", "term": "reserved", "usd": "24"}, AWS],
            (6, 3.0),
        ),
        ({}, [{**AWS, "source": "commitment", "term": "reserved"}, {**AWS, "usd": "56"}], (6, 7.0)),
        ({"provider": "other", "instance_type": None}, [{**ON_PREM, "usd": "3"}], (12, 3.0)),
        (
            {"capacity_type": "spot", "instance_type": None},
            [{**DERIVED, "source": "spot-estimate", "term": "spot", "usd": "4"}, DERIVED],
            (13, 4.0),
        ),
        ({}, [{**ON_PREM, "usd": "3"}, {**AWS, "usd": "56"}], (6, 7.0)),
        ({}, [{**AWS, "usd": "56"}, {**AWS, "source": "aws", "usd": "48"}], (6, 6.0)),
    ],
    ids=[
        "spot by its zone",
        "spot by a neighbouring zone",
        "spot without a spot price: an estimate",
        "spot with a price elsewhere: no estimate",
        "spot, an estimate elsewhere",
        "spot without an estimate: list",
        "spot, listed elsewhere only",
        "on-demand never by spot",
        "on-demand never by an estimate",
        "reserved by its commitment",
        "on-demand never by a commitment",
        "owned where no cloud is known",
        "spot of an unknown type",
        "a cloud's node never as owned",
        "a live answer before the card",
    ],
)
def test_terms_and_providers(
    node: dict[str, Any], offers: list[dict[str, Any]], won: tuple[int, float]
) -> None:
    assert priced(offers, **node) == [won]


def test_a_price_of_owned_servers_prices_no_node_of_a_cloud() -> None:
    assert priced([{**ON_PREM, "usd": "3"}], provider="aws") == []
    assert priced([{**ON_PREM, "usd": "3"}], provider="oracle") == [(12, 3.0)]


@pytest.mark.parametrize("apart", [timedelta(microseconds=1), timedelta(days=400)])
def test_of_two_prices_of_one_rank_the_newest_wins(apart: timedelta) -> None:
    """Wherever it stands in the table, and whatever it is called."""
    begun = KIT.at(-60)
    for regions in (("us-west-1", "us-west-2"), ("us-west-2", "us-west-1")):
        old, new = (
            {**AWS, "region": region, "usd": usd, "valid_from": since}
            for region, usd, since in zip(regions, ("80", "8"), (begun - apart, begun), strict=True)
        )
        assert priced([old, new]) == priced([new, old]) == [(7, 1.0)]
        # One that begins later prices nothing until then.
        later = {**new, "valid_from": KIT.at(60)}
        assert priced([old, later]) == [(7, 10.0)]


def test_what_no_rate_fits_has_no_price() -> None:
    assert priced([{**AWS, "instance_type": "p4d.24xlarge", "gpu_model": "A100-40GB"}]) == []


def test_a_price_that_changes_inside_the_hour_is_paid_by_the_minute() -> None:
    tables: Any = Tables()
    tables.put("device", [KIT.device("d", 60)])
    tables.put("node", [NODE | {"capacity_type": "spot", "gpu_count": 1, "last_seen": KIT.at(60)}])
    long_ago = datetime(1970, 1, 1)  # noqa: DTZ001
    turns = [("16", long_ago, KIT.at(45)), ("32", KIT.at(45), None)]
    rates = [
        KIT.flat_rate(usd, **SPOT | {"valid_from": start, "valid_to": end, "as_of": start})
        for usd, start, end in turns
    ]
    tables.put("rate", rates)
    tables.put("rollup_5m", KIT.looks("d", 0, 60))
    KIT.hourly(tables)
    write_ledger(tables, KIT.window(0, 60))
    (row,) = tables.rows("ledger")
    assert row["usd"] == Decimal("2.5")
    assert row["price_as_of"] == KIT.at(45)
    write_ledger(tables, KIT.window(0, 60), "5m")
    steps = tables.query("SELECT bucket, usd FROM ledger ORDER BY bucket").to_pylist()
    assert [float(s["usd"]) * 12 for s in steps] == pytest.approx([2.0] * 9 + [4.0] * 3)


def test_an_hour_priced_in_part_has_no_price() -> None:
    tables: Any = Tables()
    tables.put("device", [KIT.device("d", 60)])
    tables.put("rate", [KIT.flat_rate("2", valid_from=KIT.at(30))])
    tables.put("rollup_5m", KIT.looks("d", 0, 60))
    KIT.hourly(tables)
    write_ledger(tables, KIT.window(0, 60))
    assert [(r["usd"], r["priced"]) for r in tables.rows("ledger")] == [(None, False)]


@pytest.mark.parametrize(("nodes", "committed"), [(4, 1.0), (2, 1.0), (1, 0.5), (None, 0.0)])
def test_a_rate_says_which_share_of_its_device_commitments_pay(
    nodes: int | None, committed: float
) -> None:
    """Two nodes alike run: a commitment for two pays both, one for one pays half of each."""
    tables: Any = Tables()
    tables.put("node", [NODE | {"node": n, "last_seen": KIT.at(60)} for n in "ab"])
    tables.put("device", [KIT.device(f"d-{n}", 60, node=n) for n in "ab"])
    promised = {**AWS, "source": "commitment a", "term": "reserved", "usd": "10", "nodes": nodes}
    offers = [{**AWS, "usd": "55.04"}, *([promised] if nodes else [])]
    tables.put("rate", [KIT.flat_rate(rate.pop("usd"), **rate) for rate in map(dict, offers)])
    rows = derive_device_rates(tables, KIT.window(0, 60)).to_pylist()
    assert {(row["device"], row["committed"]) for row in rows} == {
        ("d-a", committed),
        ("d-b", committed),
    }


COMMITMENT: dict[str, Any] = {**AWS, "source": "commitment a", "term": "reserved"}


@pytest.mark.parametrize(
    ("node", "offers", "estimated"),
    [
        ({}, [AWS], False),
        ({}, [{**ON_PREM, "cluster": "c"}], False),
        ({"provider": "other", "instance_type": None}, [ON_PREM], False),
        ({"capacity_type": "spot"}, [SPOT], False),
        ({"capacity_type": "spot"}, [ESTIMATE], True),
        ({"capacity_type": "reserved"}, [AWS], True),
        ({}, [{**AWS, "region": "us-west-2"}], True),
        ({}, [DERIVED], True),
        # A commitment pays the node, or half of it.
        ({}, [{**COMMITMENT, "nodes": 1}, DERIVED], False),
        ({}, [{**COMMITMENT, "nodes": 1, "gpu_count": 4}, DERIVED], True),
    ],
)
def test_a_price_of_another_region_term_or_type_is_an_estimate(
    node: dict[str, Any], offers: list[dict[str, Any]], *, estimated: bool
) -> None:
    tables: Any = Tables()
    tables.put("device", [KIT.device("d", 60)])
    tables.put("node", [NODE | {"last_seen": KIT.at(60)} | node])
    tables.put("rate", [KIT.flat_rate(r.pop("usd", "8"), **r) for r in map(dict, offers)])
    tables.put("rollup_5m", KIT.looks("d", 0, 60))
    KIT.hourly(tables)
    write_ledger(tables, KIT.window(0, 60))
    assert {(r["priced"], r["estimated"]) for r in tables.rows("ledger")} == {(True, estimated)}


def bill_of_two(*commitments: dict[str, Any]) -> tuple[float, float]:
    """Return a day's bill of a reserved and an on-demand node, and the part that was free."""
    tables: Any = Tables()
    nodes = [NODE | {"node": n, "last_seen": KIT.at(1440)} for n in ("reserved", "on-demand")]
    nodes[0]["capacity_type"] = "reserved"
    tables.put("node", nodes)
    devices = [
        KIT.device(f"{n['node']}-{k}", 1440, node=n["node"]) for n in nodes for k in range(8)
    ]
    tables.put("device", devices)
    promised = {**AWS, "source": "commitment a", "term": "reserved", "usd": "10", "nodes": 2}
    rates = [*(promised | changes for changes in commitments), {**AWS, "usd": "55.04"}]
    tables.put("rate", [KIT.flat_rate(rate.pop("usd"), **rate) for rate in rates])
    rollups = [KIT.looks(d["device"], 0, 1440, "p" * (d["device"][-1] < "4")) for d in devices]
    tables.put("rollup_5m", [row for rows in rollups for row in rows])
    KIT.hourly(tables)
    write_allocations(tables, KIT.window(0, 1440))
    write_ledger(tables, KIT.window(0, 1440))
    sums = "SELECT sum(usd)::DOUBLE AS usd, sum(usd) FILTER (WHERE state = 'free')::DOUBLE AS free"
    (row,) = tables.query(f"{sums} FROM ledger").to_pylist()
    return round(row["usd"], 2), round(row["free"], 2)


@pytest.mark.parametrize(
    ("commitments", "usd", "free"),
    [
        # 2 nodes x 24 h x $10 = $480.00; free are 2 x 4 of 16 GPUs: 192 GPU-h x $1.25 = $240.00.
        ([{}], 480.0, 240.0),
        # One of two nodes is committed: 24 h x ($10 + $55.04) = $1,560.96, shared by both alike.
        ([{"nodes": 1}], 1560.96, 780.48),
        # It ends at noon: 12 h x $20 + 12 h x $110.08 = $240.00 + $1,320.96.
        ([{"valid_to": KIT.at(720)}], 1560.96, 780.48),
        # Four are committed, two run: nothing more is billed here; the rest "did not run".
        ([{"nodes": 4}], 480.0, 240.0),
        # Two for one node each: 24 h x ($10 + $20); of three nodes the first two in time count.
        ([{"nodes": 1}, {"nodes": 1, "source": "commitment b", "usd": "20"}], 720.0, 360.0),
        ([{}, {"nodes": 1, "source": "commitment b", "usd": "20"}], 480.0, 240.0),
        ([{"region": "us-west-2"}], 2641.92, 1320.96),
        ([{"instance_type": "p4d.24xlarge"}], 2641.92, 1320.96),
    ],
)
def test_a_commitment_of_the_hour_is_shared_by_all_matching_nodes(
    commitments: list[dict[str, Any]], usd: float, free: float
) -> None:
    assert bill_of_two(*commitments) == (usd, free)
