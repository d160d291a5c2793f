"""Settings of prices: rate cards, owned servers and reserved capacity."""

from datetime import UTC, datetime
from decimal import Decimal
from typing import Annotated

from pydantic import AfterValidator, AwareDatetime, Field

from fallow.money import DECIMALS, MOST_USD, MOST_USD_H
from fallow.settings.groups import SettingsGroup
from fallow.window import EARLIEST

ALWAYS = datetime(1970, 1, 1, tzinfo=UTC)
"""The `valid_from` of a rate whose source says no time."""
SPOT_ESTIMATE = "spot-estimate"
"""The source of prices of spot nodes that follow from the on-demand price."""


def check_price_time(at: datetime) -> datetime:
    """Return a time from which a price may hold.

    Raises:
        ValueError: it is before 2012.
    """
    if at < EARLIEST.replace(tzinfo=UTC):
        raise ValueError(f"no price holds from {at:%Y-%m-%d} on: the earliest is {EARLIEST:%Y}")
    return at


PriceTime = Annotated[AwareDatetime, AfterValidator(check_price_time)]
Usd = Annotated[Decimal, Field(ge=0, lt=MOST_USD)]
"""Dollars from outside, whatever they are for."""
UsdPerHour = Annotated[Decimal, Field(gt=0, lt=MOST_USD_H, decimal_places=DECIMALS)]
"""A price from outside, of an hour of a GPU or of a node."""


class OwnedServer(SettingsGroup):
    """A kind of server that the site owns: what its GPU-hour costs, amortised."""

    capex_usd: Usd = Field(gt=0, decimal_places=DECIMALS, description="price of one server")
    gpus: int = Field(gt=0, le=1000, description="GPUs of one server")
    years: Decimal = Field(Decimal(4), ge=Decimal("0.1"), le=100, description="life")
    residual_usd: Usd = Field(Decimal(0), description="worth at the end of its life")
    availability: Decimal = Field(Decimal("0.97"), ge=Decimal("0.01"), le=1)
    kw: Decimal = Field(Decimal(0), ge=0, le=10_000, description="what one server draws")
    pue: Decimal = Field(
        Decimal("1.3"), ge=1, le=10, description="power usage effectiveness of the site"
    )
    usd_per_kwh: Decimal = Field(Decimal("0.10"), ge=0, le=100)
    running_pct_per_year: Decimal = Field(
        Decimal(0), ge=0, le=1000, description="support, space and staff in percent of capex"
    )
    gpu_model: str = Field("", description="empty = any")
    instance_type: str = Field("", description="empty = any")
    cluster: str = Field("", description="empty = any")
    valid_from: PriceTime | None = Field(
        None, description="when this price began, beside others of the same servers"
    )


class ReservedCapacity(SettingsGroup):
    """A commitment: so many nodes at an effective price for a term."""

    name: str
    provider: str
    instance_type: str
    nodes: int = Field(gt=0, le=1_000_000)
    gpus_per_node: int = Field(gt=0, le=1000)
    usd_per_node_hour: UsdPerHour
    start: AwareDatetime
    end: AwareDatetime
    region: str = ""
    gpu_model: str = ""


class PriceSettings(SettingsGroup):
    """Where prices come from; the first source that knows a node prices it."""

    usd_per_gpu_hour: UsdPerHour | None = Field(
        None, description="one price for every GPU of `cluster`, before any rate card"
    )
    by_model: dict[str, UsdPerHour] = Field(
        default_factory=dict, description="USD per GPU-hour by model of gpu_models.csv"
    )
    rate_card: str = Field("", description="CSV that overrides the built-in rate card")
    region: str = Field("", description="region for nodes that name none")
    discount_pct: float = Field(0.0, ge=0, le=99, description="negotiated discount on list")
    on_prem: list[OwnedServer] = Field(
        default_factory=list, description="servers the site owns: capex_usd, gpus, years, kw ..."
    )
    commitments: list[ReservedCapacity] = Field(
        default_factory=list, description="reserved capacity: name, nodes, usd_per_node_hour ..."
    )
    valid_from: PriceTime | None = Field(
        None,
        description="these prices hold from then on, also where others did; without it,"
        " hours that have a price keep it",
    )
    aws_regions: list[str] = Field(
        default_factory=list, description="regions whose list and spot prices AWS is asked for"
    )
