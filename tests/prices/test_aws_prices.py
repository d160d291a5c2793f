"""AWS prices: the list through a stub, spot history through a server over HTTP."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import boto3  # noqa: TID253  (the test speaks to AWS's stand-ins)
import pytest
from botocore.stub import ANY, Stubber
from moto.server import ThreadedMotoServer

from collectors.prices.aws import NO_DISCOUNT, AwsPrices
from fallow.errors import AuthError, TemporaryError
from fallow.window import Window

NOW = datetime(2026, 11, 20, tzinfo=UTC)
WEEK = Window(NOW - timedelta(days=7), NOW)
KEYS: Any = {"aws_access_key_id": "test", "aws_secret_access_key": "test"}


def product(usd: str) -> str:
    price = {"unit": "Hrs", "pricePerUnit": {"USD": usd}}
    return json.dumps({"terms": {"OnDemand": {"o": {"priceDimensions": {"d": price}}}}})


def stubbed(listed: str, spot: list[tuple[str, str, int]]) -> AwsPrices:
    clients = {s: boto3.client(s, region_name="us-east-1", **KEYS) for s in ("pricing", "ec2")}
    stubs = {name: Stubber(client) for name, client in clients.items()}
    stubs["pricing"].add_response("get_products", {"PriceList": [product(listed)]})
    history = [
        {
            "InstanceType": "g4dn.xlarge",
            "AvailabilityZone": zone,
            "SpotPrice": usd,
            "Timestamp": NOW - timedelta(days=days),
        }
        for zone, usd, days in spot
    ]
    wanted = dict.fromkeys(("InstanceTypes", "ProductDescriptions", "StartTime", "EndTime"), ANY)
    answer = {"SpotPriceHistory": history}
    stubs["ec2"].add_response("describe_spot_price_history", answer, wanted)
    for stub in stubs.values():
        stub.activate()
    return AwsPrices(
        instance_types=["g4dn.xlarge"], client=lambda s, _: clients[s], clock=lambda: NOW
    )


def test_spot_changes_hold_until_the_next_and_equal_to_list_is_said() -> None:
    spot = [("us-east-1a", "0.20", 1), ("us-east-1a", "0.19", 5), ("us-east-1b", "0.526", 3)]
    rows = stubbed("0.5260000000", spot).rates(WEEK).rows.to_pylist()
    listed, *changes = rows
    assert (listed["term"], listed["node_usd_h"]) == ("on-demand", Decimal("0.526"))
    result = [(r["zone"], r["node_usd_h"], r["valid_to"]) for r in changes]
    yesterday = datetime(2026, 11, 19)  # noqa: DTZ001
    assert result == [
        ("us-east-1a", Decimal("0.19"), yesterday),
        ("us-east-1a", Decimal("0.20"), None),
        ("us-east-1b", Decimal("0.526"), None),
    ]
    assert [r["reference"] == NO_DISCOUNT for r in changes] == [False, False, True]


def test_a_price_of_zero_is_no_offer() -> None:
    assert stubbed("0.0000000000", []).rates(WEEK).rows.num_rows == 0


@pytest.mark.parametrize(
    ("code", "kind"),
    [("AccessDeniedException", AuthError), ("ThrottlingException", TemporaryError)],
)
def test_refusals_say_what_to_do(code: str, kind: type[Exception]) -> None:
    client = boto3.client("pricing", region_name="us-east-1", **KEYS)
    stub = Stubber(client)
    stub.add_client_error("get_products", code, "no")
    stub.activate()
    with pytest.raises(kind, match="AWS refused to tell prices"):
        AwsPrices(instance_types=["g5.xlarge"], client=lambda *_: client).rates(WEEK)


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    running = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    running.start()
    host, port = running.get_host_and_port()
    yield f"http://{host}:{port}"
    running.stop()


def test_spot_history_is_read_over_http(server: str) -> None:
    class NoList:
        def get_paginator(self, _name: str) -> Any:
            return self

        def paginate(self, **_asked: Any) -> list[Any]:
            return []

    def client(service: str, region: str) -> Any:
        if service == "pricing":
            return NoList()
        return boto3.client("ec2", region_name=region, endpoint_url=server, **KEYS)

    source = AwsPrices(instance_types=["g4dn.xlarge"], client=client, clock=lambda: NOW)
    rows = source.rates(WEEK).rows.to_pylist()
    assert rows
    assert {r["term"] for r in rows} == {"spot"}
    assert all(r["zone"].startswith("us-east-1") and r["node_usd_h"] > 0 for r in rows)
