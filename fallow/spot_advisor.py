"""Read what providers publish of spot nodes: interruptions and discounts (`spot_advisor.csv`)."""

from functools import cache

import msgspec

from fallow.resources import read_table

NodeType = tuple[str, str, str]
"""Provider, region, instance type."""


class PublishedSpot(msgspec.Struct, frozen=True):
    """What a provider publishes about spot nodes of one type: shares in percent."""

    provider: str
    region: str
    instance_type: str
    low_pct_per_month: int
    savings_pct: int
    as_of: str
    source: str
    high_pct_per_month: int | None = None
    """None = there is no upper limit."""


@cache
def read_published_spot() -> dict[NodeType, PublishedSpot]:
    """Return what providers publish, by node type."""
    rows = [
        {column: cell for column, cell in row.items() if cell}
        for row in read_table("fallow", "spot_advisor.csv")
    ]
    published = msgspec.convert(rows, list[PublishedSpot], strict=False)
    return {(row.provider, row.region, row.instance_type): row for row in published}
