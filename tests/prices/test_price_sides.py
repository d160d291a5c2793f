"""Rate cards and AWS answers: the legal value beside each that is refused, and what is said."""

import json
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from botocore.exceptions import ClientError, EndpointConnectionError
from pydantic import ValidationError

from collectors.prices.aws import NO_DISCOUNT, AwsPrices
from collectors.prices.card import COLUMNS, CardRow, read, read_built_in
from collectors.prices.commitments import Commitments
from collectors.prices.on_prem import OnPrem
from collectors.prices.parts import split
from collectors.prices.rate_card import compute_gpu_bases, find_cheapest
from fallow.errors import AuthError, FallowError, SourceError, TemporaryError, UsageError
from fallow.settings.prices import ReservedCapacity
from fallow.window import Window

NOW = datetime(2026, 11, 20, tzinfo=UTC)
WEEK = Window(NOW - timedelta(days=7), NOW)
GOOD = {
    "provider": "aws", "region": "us-east-1", "instance_type": "p5.48xlarge", "gpu_model": "H100",
    "gpu_count": "8", "vcpu": "192", "memory_gib": "2048", "term": "on-demand",
    "usd_per_hour": "50", "as_of": "2026-10-01", "reference": "contract", "confirmed": "yes",
}  # fmt: skip


def card(**changes: str) -> CardRow:
    values = {**GOOD, **changes}
    (row,) = read([",".join(COLUMNS), ",".join(values[name] for name in COLUMNS)], "card.csv")
    return row


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"provider": ""}, "provider is empty"),
        ({"instance_type": " "}, "instance_type is empty"),
        ({"reference": ""}, "reference is empty"),
        ({"gpu_model": "H900"}, "gpu_model is 'H900'"),
        ({"term": "lease"}, "term is 'lease'"),
        ({"confirmed": "maybe"}, "confirmed is 'maybe'"),
        ({"gpu_count": "0"}, "gpu_count is '0', not a number of more than zero"),
        ({"gpu_count": "1.5"}, "gpu_count is '1.5', not a whole number of GPUs"),
        ({"gpu_count": "-1"}, "gpu_count is '-1'"),
        ({"vcpu": "-1"}, "vcpu is '-1', not a number of zero or more"),
        ({"vcpu": "many"}, "vcpu is 'many'"),
        ({"memory_gib": "inf"}, "memory_gib is 'inf'"),
        ({"usd_per_hour": "1000000"}, "usd_per_hour is '1000000'"),
        ({"usd_per_hour": "700"}, "usd_per_hour is 700, which catalogues print for 'no price'"),
        ({"as_of": "today"}, "as_of is 'today', not a date"),
    ],
)
def test_a_value_that_is_not_legal_is_named_with_its_line(
    changes: dict[str, str], said: str
) -> None:
    with pytest.raises(UsageError) as refused:
        card(**changes)
    assert refused.value.message.startswith(f"card.csv, line 2: {said}")


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"vcpu": "0", "memory_gib": "0"}, {"vcpu": 0, "memory_gib": 0}),
        ({"usd_per_hour": "999999.99"}, {"usd_per_hour": Decimal("999999.99")}),
        ({"usd_per_hour": "700.01"}, {"usd_per_hour": Decimal("700.01")}),
        ({"usd_per_hour": ""}, {"usd_per_hour": None}),
        ({"gpu_count": "1"}, {"gpu_count": 1}),
        ({"region": ""}, {"region": ""}),
        ({"confirmed": "no"}, {"confirmed": False}),
        ({}, {"confirmed": True, "gpu_count": 8, "as_of": datetime(2026, 10, 1, tzinfo=UTC)}),
    ],
)
def test_a_value_at_the_edge_is_taken_as_it_is(
    changes: dict[str, str], expected: dict[str, Any]
) -> None:
    row = card(**changes)
    assert {name: getattr(row, name) for name in expected} == expected


def test_a_header_has_every_column_once() -> None:
    line = ",".join(GOOD[name] for name in COLUMNS)
    for header in (",".join(COLUMNS[1:]), ",".join([*COLUMNS, "region"]), "x"):
        with pytest.raises(UsageError, match=r"the header of card\.csv does not fit"):
            read([header, line], "card.csv")
    for wrong in (f"{line},more", line.rpartition(",")[0]):
        with pytest.raises(UsageError, match="does not have 12 values"):
            read([",".join(COLUMNS), wrong], "card.csv")


def test_the_base_price_of_a_gpu_is_the_median_of_what_cores_and_memory_leave() -> None:
    rows = [
        card(vcpu="0", memory_gib="0", usd_per_hour=usd, region=f"r{usd}")
        for usd in ("8", "24", "16")
    ]
    spot = card(vcpu="0", memory_gib="0", usd_per_hour="800", term="spot")
    assert compute_gpu_bases([*rows, spot]) == {"H100": Decimal(2)}
    assert compute_gpu_bases([card(usd_per_hour="1")]) == {}, "the node costs less than its cores"
    assert find_cheapest([*rows, spot])["H100"].usd_per_hour == 8
    per_gpu = card(gpu_count="16", usd_per_hour="15", region="wide")
    assert find_cheapest([*rows, per_gpu])["H100"].region == "wide"


def test_a_price_is_split_in_the_ratio_of_base_prices() -> None:
    parts = split(
        Decimal(60), 2, Decimal(10), Decimal(20),
        gpu_base=Decimal(10), cpu_base=Decimal(1), memory_base=Decimal("0.5"),
    )  # fmt: skip
    assert [str(p.normalize()) for p in (parts.gpu, parts.cpu, parts.memory, parts.total)] == [
        "3E+1", "15", "15", "6E+1",
    ]  # fmt: skip
    by_unit = [parts.gpu_usd_h, parts.cpu_usd_h, parts.memory_usd_h]
    assert by_unit == [Decimal(15), Decimal("1.5"), Decimal("0.75")]
    none = split(Decimal(8), 8, Decimal(0), Decimal(0))
    assert [none.gpu_usd_h, none.cpu_usd_h, none.memory_usd_h] == [Decimal(1), None, None]


class Api:
    """AWS's two services, with answers of the test's."""

    def __init__(self, listed: list[str], spot: list[dict[str, Any]] | Exception) -> None:
        self.listed, self.spot = listed, spot
        self.asked: list[dict[str, Any]] = []

    def __call__(self, service: str, region: str) -> "Api":
        self.asked.append({"service": service, "region": region})
        return self

    def get_paginator(self, name: str) -> "Api":
        self.asked.append({"paginator": name})
        return self

    def paginate(self, **asked: Any) -> list[dict[str, Any]]:
        self.asked.append(asked)
        if isinstance(self.spot, Exception):
            raise self.spot
        return [{"PriceList": self.listed, "SpotPriceHistory": self.spot}]


def product(*prices: tuple[str, str]) -> str:
    sizes = {f"d{n}": {"unit": u, "pricePerUnit": {"USD": p}} for n, (u, p) in enumerate(prices)}
    return json.dumps({"terms": {"OnDemand": {"o": {"priceDimensions": sizes}}}})


def rows_of(
    listed: list[str], spot: Any = (), name: str = "g4dn.xlarge", **more: Any
) -> list[dict[str, Any]]:
    api = Api(listed, spot if isinstance(spot, Exception) else list(spot))
    source = AwsPrices(instance_types=[name], client=api, clock=lambda: NOW, **more)
    found: list[dict[str, Any]] = source.rates(WEEK).rows.to_pylist()
    return found


def change(usd: str, hours: int, zone: str = "us-east-1a") -> dict[str, Any]:
    at = NOW - timedelta(hours=hours)
    base = {"InstanceType": "g4dn.xlarge", "AvailabilityZone": zone}
    return {**base, "SpotPrice": usd, "Timestamp": at}


def test_a_list_price_is_the_first_by_the_hour_above_zero() -> None:
    text = product(("Quantity", "9"), ("Hrs", "0.0"), ("Hrs", "0.5"), ("Hrs", "0.7"))
    (row,) = rows_of([text], spot=())
    assert (row["term"], row["node_usd_h"], row["zone"]) == ("on-demand", Decimal("0.5"), "")
    assert (row["gpu_model"], row["gpu_count"], row["vcpu"], row["memory_gib"]) == (
        "T4", 1, 4.0, 16.0,
    )  # fmt: skip
    parts = row["gpu_usd_h"] + 4 * row["cpu_usd_h"] + 16 * row["memory_usd_h"]
    assert abs(parts - Decimal("0.5")) < Decimal("0.000001")
    assert rows_of([json.dumps({"terms": {}})]) == []
    assert rows_of([product(("Quantity", "9"))]) == []


def test_a_type_that_no_card_has_is_priced_without_parts() -> None:
    (row,) = rows_of([product(("Hrs", "3"))], name="x9.large")
    assert (row["instance_type"], row["node_usd_h"]) == ("x9.large", 3)
    assert row.get("gpu_usd_h") is None


def test_spot_is_read_unless_it_is_off_and_each_change_lasts_until_the_next() -> None:
    listed = [product(("Hrs", "0.5"))]
    spot = [change("0.2", 1), change("0.5", 3), change("0", 2), change("0.3", 9, "us-east-1b")]
    rows = rows_of(listed, spot)
    later = (NOW - timedelta(hours=1)).replace(tzinfo=None)
    assert [(r["zone"], r["node_usd_h"], r["valid_to"]) for r in rows[1:]] == [
        ("us-east-1a", Decimal("0.5"), later),
        ("us-east-1a", Decimal("0.2"), None),
        ("us-east-1b", Decimal("0.3"), None),
    ]
    assert [r["reference"] for r in rows[1:]] == [
        NO_DISCOUNT, "AWS spot history us-east-1a", "AWS spot history us-east-1b",
    ]  # fmt: skip
    assert {r["reference"] for r in rows_of([], [change("0.5", 1)])} == {
        "AWS spot history us-east-1a"
    }


def test_without_spot_only_the_list_is_asked() -> None:
    api = Api([product(("Hrs", "0.5"))], [change("0.2", 1)])
    source = AwsPrices(["eu-west-1"], ["g4dn.xlarge"], spot=False, client=api, clock=lambda: NOW)
    (row,) = source.rates(WEEK).rows.to_pylist()
    assert (row["term"], row["region"]) == ("on-demand", "eu-west-1")
    assert {"service": "ec2", "region": "eu-west-1"} not in api.asked
    assert {"service": "pricing", "region": "us-east-1"} in api.asked
    with_spot = AwsPrices(["eu-west-1"], ["g4dn.xlarge"], client=api, clock=lambda: NOW)
    assert len(with_spot.rates(WEEK).rows) == 2


def test_all_types_of_the_card_are_asked_for_unless_some_are_named() -> None:
    api = Api([], [])
    AwsPrices(client=api, clock=lambda: NOW).rates(WEEK)
    (spot,) = (a for a in api.asked if "InstanceTypes" in a)
    assert spot["InstanceTypes"] == list(
        dict.fromkeys(r.instance_type for r in read_built_in() if r.provider == "aws")
    )
    assert (spot["StartTime"], spot["EndTime"]) == (WEEK.start, WEEK.end)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("not json", "the product of g4dn.xlarge has no readable price"),
        ("{}", "the product of g4dn.xlarge has no readable price"),
        ('{"terms": []}', "the product of g4dn.xlarge has no readable price"),
        (product(("Hrs", "cheap")), "list price of g4dn.xlarge is 'cheap', not a number"),
        (product(("Hrs", "-1")), "list price of g4dn.xlarge is '-1', not a price"),
        (product(("Hrs", "NaN")), "list price of g4dn.xlarge is 'NaN', not a price"),
    ],
)
def test_what_is_no_price_is_refused_with_the_type(text: str, said: str) -> None:
    with pytest.raises(SourceError) as refused:
        rows_of([text])
    assert said in refused.value.message


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("AccessDenied", AuthError),
        ("ExpiredToken", AuthError),
        ("UnrecognizedClientException", AuthError),
        ("Throttling", TemporaryError),
        ("RequestLimitExceeded", TemporaryError),
        ("InternalError", TemporaryError),
        ("Unavailable", TemporaryError),
        ("ValidationError", SourceError),
    ],
)
def test_a_refusal_of_aws_says_whether_to_try_again(code: str, kind: type[FallowError]) -> None:
    error = ClientError({"Error": {"Code": code, "Message": ""}}, "GetProducts")
    with pytest.raises(kind) as refused:
        rows_of([], error)
    assert type(refused.value) is kind
    assert refused.value.message == f"AWS refused to tell prices: {code}"
    with pytest.raises(TemporaryError, match="cannot ask AWS for prices"):
        rows_of([], EndpointConnectionError(endpoint_url="https://aws"))


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"capex_usd": Decimal(0)}, "capex_usd"),
        ({"gpus": 0}, "gpus"),
        ({"years": Decimal(0)}, "years"),
        ({"residual_usd": Decimal(-1)}, "residual_usd"),
        ({"residual_usd": Decimal(1001)}, "residual_usd"),
        ({"availability": Decimal(0)}, "availability"),
        ({"availability": Decimal("1.01")}, "availability"),
        ({"kw": Decimal(-1)}, "kw"),
        ({"pue": Decimal("0.99")}, "pue"),
        ({"usd_per_kwh": Decimal(-1)}, "usd_per_kwh"),
        ({"running_pct_per_year": Decimal(-1)}, "running_pct_per_year"),
    ],
)
def test_an_owned_server_s_figures_are_refused_one_by_one(
    changes: dict[str, Any], name: str
) -> None:
    good: dict[str, Any] = {"capex_usd": Decimal(1000), "gpus": 1}
    with pytest.raises(UsageError) as refused:
        OnPrem(**{**good, **changes})
    assert refused.value.message == f"on-prem price: {name} out of range"


def test_an_owned_server_at_the_edges_of_its_figures_costs_what_the_formula_says() -> None:
    free = OnPrem(
        capex_usd=Decimal(8760), gpus=2, years=Decimal(1), residual_usd=Decimal(8760),
        availability=Decimal(1), pue=Decimal(1), usd_per_kwh=Decimal(0),
    )  # fmt: skip
    assert free.cost.total == 0
    made = OnPrem(
        capex_usd=Decimal(8760), gpus=2, years=Decimal(1), residual_usd=Decimal(4380),
        availability=Decimal("0.5"), kw=Decimal(4), pue=Decimal("1.5"), usd_per_kwh=Decimal("0.2"),
        running_pct_per_year=Decimal(10), clock=lambda: NOW,
    )  # fmt: skip
    assert (made.cost.capital, made.cost.energy, made.cost.running) == (
        Decimal("0.5"), Decimal("0.6"), Decimal("0.05"),
    )  # fmt: skip
    (row,) = made.rates(WEEK).rows.to_pylist()
    assert (row["gpu_usd_h"], row["node_usd_h"], row["gpu_count"]) == (
        Decimal("1.15"), Decimal("2.3"), 2,
    )  # fmt: skip


@pytest.mark.parametrize(
    "changes",
    [
        {"nodes": 0},
        {"gpus_per_node": 0},
        {"usd_per_node_hour": Decimal(0)},
        {"end": NOW - timedelta(days=1)},
        {"end": NOW - timedelta(days=2)},
    ],
)
def test_a_commitment_of_nothing_is_refused(changes: dict[str, Any]) -> None:
    good: dict[str, Any] = {
        "name": "a", "provider": "aws", "instance_type": "t", "nodes": 1, "gpus_per_node": 1,
        "usd_per_node_hour": Decimal("0.01"), "start": NOW - timedelta(days=1), "end": NOW,
    }  # fmt: skip
    assert (
        Commitments([ReservedCapacity(**good)])
        .rates(Window.last(timedelta(days=2), now=NOW))
        .rows.num_rows
        == 1
    )
    with pytest.raises((UsageError, ValidationError), match=r"commitment .a.|greater than 0"):
        Commitments([ReservedCapacity(**{**good, **changes})])
