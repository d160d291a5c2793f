"""AWS prices through boto3: on-demand from the Pricing API, spot from its price history."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from typing import Any

from collectors.prices.card import CardRow, read_built_in
from collectors.prices.parts import GPU_BASE, split
from collectors.prices.rate_card import batch, compute_gpu_bases, get_utc_now
from fallow.errors import AuthError, FallowError, SourceError, TemporaryError
from fallow.money import MOST_USD_H
from fallow.tables import Batch
from fallow.window import Window

PRICING_REGION = "us-east-1"
"""The Pricing API exists in few regions; this one has the prices of every region."""
NO_DISCOUNT = "spot equals list: no spot market here"
DENIED = {"AccessDenied", "AccessDeniedException", "UnauthorizedOperation", "AuthFailure"}
DENIED |= {"InvalidClientTokenId", "UnrecognizedClientException", "ExpiredToken"}

Client = Any
ClientFactory = Callable[[str, str], Client]


def _build_client(service: str, region: str) -> Client:
    import boto3

    return boto3.client(service, region_name=region)  # type: ignore[call-overload]


class AwsPrices:
    """On-demand prices and spot price changes of GPU instance types.

    Instance types are those of the rate card unless named. A spot price that equals the list
    price is kept and its reference says that there is no discount.
    """

    def __init__(
        self,
        regions: Sequence[str] = ("us-east-1",),
        instance_types: Sequence[str] = (),
        *,
        spot: bool = True,
        client: ClientFactory = _build_client,
        clock: Callable[[], datetime] = get_utc_now,
    ) -> None:
        """Take the regions to query; credentials follow the AWS chain."""
        card = {r.instance_type: r for r in read_built_in() if r.provider == "aws"}
        self._regions = tuple(regions)
        self._types = tuple(instance_types) or tuple(card)
        self._spot = spot
        self._client = client
        self._clock = clock
        self._shapes = card
        self._bases = compute_gpu_bases(tuple(card.values()))

    def rates(self, window: Window) -> Batch:
        """Return `rate` rows: on-demand as of now, spot by zone with its changes in the window.

        Raises:
            AuthError: AWS refused the credentials.
            TemporaryError: AWS could not be reached, or throttled the request.
            SourceError: AWS answered with something that is not a price.
        """
        from botocore.exceptions import BotoCoreError, ClientError  # noqa: PLC0415

        rows: list[dict[str, Any]] = []
        try:
            for region in self._regions:
                on_demand = {r["instance_type"]: r for r in self._on_demand(region)}
                rows += on_demand.values()
                if self._spot:
                    rows += self._spot_changes(region, window, on_demand)
        except ClientError as error:
            raise _explain(error.response.get("Error", {})) from error
        except BotoCoreError as error:
            raise TemporaryError(
                f"cannot ask AWS for prices: {error}",
                hint="set AWS credentials and a region, or leave this source out",
            ) from error
        return batch(rows)

    def _on_demand(self, region: str) -> Iterator[dict[str, Any]]:
        pricing = self._client("pricing", PRICING_REGION)
        pages = pricing.get_paginator("get_products")
        for name in self._types:
            filters = {
                "instanceType": name,
                "regionCode": region,
                "operatingSystem": "Linux",
                "preInstalledSw": "NA",
                "tenancy": "Shared",
                "capacitystatus": "Used",
            }
            filter_terms = [
                {"Type": "TERM_MATCH", "Field": f, "Value": v} for f, v in filters.items()
            ]
            for page in pages.paginate(ServiceCode="AmazonEC2", Filters=filter_terms):
                for text in page["PriceList"]:
                    usd = _list_price(text, name)
                    if usd is not None:
                        yield self._row(name, region, "", "on-demand", usd) | {
                            "valid_from": self._clock(),
                            "reference": f"AWS Pricing API {region}",
                        }

    def _spot_changes(
        self, region: str, window: Window, on_demand: dict[str, dict[str, Any]]
    ) -> Iterator[dict[str, Any]]:
        pages = self._client("ec2", region).get_paginator("describe_spot_price_history")
        changes_by_type: dict[tuple[str, str], dict[datetime, Decimal]] = {}
        for page in pages.paginate(
            InstanceTypes=list(self._types),
            ProductDescriptions=["Linux/UNIX"],
            StartTime=window.start,
            EndTime=window.end,
        ):
            for change in page["SpotPriceHistory"]:
                key = change["InstanceType"], change["AvailabilityZone"]
                usd = _parse_money(change["SpotPrice"], f"spot price of {key[0]} in {key[1]}")
                if usd is not None:
                    changes_by_type.setdefault(key, {})[change["Timestamp"].astimezone(UTC)] = usd
        for (name, zone), changes in sorted(changes_by_type.items()):
            change_times = sorted(changes)
            for at, change_time in enumerate(change_times):
                usd = changes[change_time]
                no_discount = name in on_demand and usd == on_demand[name]["node_usd_h"]
                yield self._row(name, region, zone, "spot", usd) | {
                    "valid_from": change_time,
                    "valid_to": change_times[at + 1] if at + 1 < len(change_times) else None,
                    "reference": NO_DISCOUNT if no_discount else f"AWS spot history {zone}",
                }

    def _row(self, name: str, region: str, zone: str, term: str, usd: Decimal) -> dict[str, Any]:
        base = {
            "source": "aws",
            "provider": "aws",
            "region": region,
            "zone": zone,
            "instance_type": name,
            "term": term,
            "as_of": self._clock(),
            "node_usd_h": usd,
        }
        shape: CardRow | None = self._shapes.get(name)
        if shape is None:
            return base
        parts = split(
            usd,
            shape.gpu_count,
            shape.vcpu,
            shape.memory_gib,
            gpu_base=self._bases.get(shape.gpu_model, GPU_BASE),
        )
        return base | {
            "gpu_model": shape.gpu_model,
            "gpu_count": shape.gpu_count,
            "vcpu": float(shape.vcpu),
            "memory_gib": float(shape.memory_gib),
            "gpu_usd_h": parts.gpu_usd_h,
            "cpu_usd_h": parts.cpu_usd_h,
            "memory_usd_h": parts.memory_usd_h,
        }


def _list_price(text: str, name: str) -> Decimal | None:
    try:
        terms = json.loads(text)["terms"].get("OnDemand", {})
        prices = [
            dimension["pricePerUnit"]["USD"]
            for term in terms.values()
            for dimension in term["priceDimensions"].values()
            if dimension.get("unit") == "Hrs"
        ]
    except (ValueError, KeyError, AttributeError, TypeError, RecursionError) as error:
        raise SourceError(
            f"AWS Pricing API: the product of {name} has no readable price"
        ) from error
    prices_read = [
        usd for p in prices if (usd := _parse_money(p, f"list price of {name}")) is not None
    ]
    return prices_read[0] if prices_read else None


def _parse_money(text: str, price_name: str) -> Decimal | None:
    """Return a price, or None for zero: AWS has 0 where it offers nothing."""
    try:
        usd = Decimal(text)
    except (InvalidOperation, TypeError, ValueError) as error:
        raise SourceError(f"AWS: the {price_name} is {text!r}, not a number") from error
    if not usd.is_finite() or not 0 <= usd < MOST_USD_H:
        raise SourceError(f"AWS: the {price_name} is {text!r}, not a price")
    return usd or None


def _explain(error: Mapping[str, Any]) -> FallowError:
    code, message = error.get("Code", "unknown error"), error.get("Message", "")
    line = f"AWS refused to tell prices: {code}: {message}".rstrip(": ")
    if code in DENIED:
        permissions = "pricing:GetProducts and ec2:DescribeSpotPriceHistory"
        return AuthError(line, hint=f"the credentials need {permissions}")
    if "Throttl" in code or code in {"RequestLimitExceeded", "InternalError", "Unavailable"}:
        return TemporaryError(line, hint="try again in a minute")
    return SourceError(line)
