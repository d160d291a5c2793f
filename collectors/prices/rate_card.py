"""Provide the rate card's prices: list prices, overrides by settings, fallbacks by model."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from itertools import groupby
from pathlib import Path
from statistics import median, median_low
from typing import Any

import msgspec

from collectors.prices.card import CardRow, read_built_in, read_card_file
from collectors.prices.parts import CPU_BASE, GPU_BASE, MEMORY_BASE, QUANTUM, PriceParts, split
from fallow.errors import UsageError
from fallow.gpu_models import get_model_name, read_gpu_models
from fallow.settings.prices import ALWAYS, SPOT_ESTIMATE, PriceSettings
from fallow.spot_advisor import read_published_spot
from fallow.tables import Batch
from fallow.window import Window


def get_utc_now() -> datetime:
    """Return the current time, aware."""
    return datetime.now(UTC)


class RateCard:
    """Dated list prices of GPU instance types (AWS, GCP, Azure), with the settings' overrides.

    Rows by `source`: `settings` (of the cluster: one price for all, or by model), `rate-card` (one
    per offer and date), `derived` (per GPU model, the cheapest on-demand price per GPU on the card,
    for instance types that no source knows), `spot-estimate` (of these, each on-demand price less
    the discount of spot nodes).
    """

    def __init__(
        self,
        settings: PriceSettings | None = None,
        clock: Callable[[], datetime] = get_utc_now,
        cluster: str = "",
    ) -> None:
        """Read the card; a site's own rows replace the built-in rows of the same offers.

        Raises:
            UsageError: the site's card is not legal, or settings price an unknown GPU model.
        """
        self._settings = settings or PriceSettings()
        self._clock, self._cluster = clock, cluster
        self.card = _merge_cards(self._settings.rate_card)
        for row in self.card:
            if row.valid_from is not None and row.valid_from > clock():
                raise UsageError(
                    f"{self._settings.rate_card}: {' '.join(row.offer)} is valid_from "
                    f"{row.valid_from.date()}, in the future",
                    hint="as_of dates a price that comes",
                )
        models = {m.gpu_model for m in read_gpu_models()}
        for model in self._settings.by_model:
            if model not in models:
                raise UsageError(
                    f"prices.by_model prices {model!r}, which is no known GPU model",
                    hint=f"legal: {', '.join(sorted(models))}",
                )

    def rates(self, window: Window) -> Batch:
        """Return the `rate` rows valid in the window: settings, card and derived fallbacks."""
        records = [*self._overrides(), *self._offers(), *self._derived()]
        end, start = window.end, window.start
        valid = (
            r
            for r in records
            if r["valid_from"] < end and (r.get("valid_to") is None or r["valid_to"] > start)
        )
        return batch(valid)

    def _overrides(self) -> Iterator[dict[str, Any]]:
        prices = dict(self._settings.by_model)
        if self._settings.usd_per_gpu_hour is not None:
            prices[""] = self._settings.usd_per_gpu_hour
        for model, usd in prices.items():
            key = f"by_model.{model}" if model else "usd_per_gpu_hour"
            yield build_flat_rate(
                usd,
                source="settings",
                gpu_model=model,
                cluster=self._cluster,
                as_of=self._clock(),
                reference=f"settings: prices.{key}",
            )

    def _offers(self) -> Iterator[dict[str, Any]]:
        bases = compute_gpu_bases(self.card)
        for _, offers in groupby(sorted(self.card, key=lambda r: (r.offer, r.dated)), _offer):
            dated = list(offers)
            for at, row in enumerate(dated):
                if row.usd_per_hour is None:
                    continue
                offer = {
                    "source": "rate-card",
                    "provider": row.provider,
                    "region": row.region,
                    "instance_type": row.instance_type,
                    "valid_from": row.valid_from or (row.as_of if at else ALWAYS),
                    "valid_to": dated[at + 1].dated if at + 1 < len(dated) else None,
                    "reference": row.reference + ("" if row.confirmed else " (unconfirmed)"),
                }
                yield _build_rate_row(row, self._net(row), bases) | offer
                if row.term == "on-demand":
                    discount = self._estimate_discount(row)
                    usd = discount.reduce(self._net(row))
                    yield _build_rate_row(row, usd, bases) | offer | discount.describe()

    def _derived(self) -> Iterator[dict[str, Any]]:
        bases = compute_gpu_bases(self.card)
        for model, row in sorted(find_cheapest(self.card).items()):
            offer = {
                "source": "derived",
                "provider": "derived",
                "gpu_model": model,
                "valid_from": ALWAYS,
                "gpu_count": 1,
                "vcpu": float(row.vcpu / row.gpu_count),
                "memory_gib": float(row.memory_gib / row.gpu_count),
                "reference": f"derived: cheapest on-demand per GPU, {row.instance_type} "
                f"{row.region}",
            }
            discount = self._estimate_discount(row)
            for usd, words in (
                (self._net(row), {}),
                (discount.reduce(self._net(row)), discount.describe()),
            ):
                per_gpu = {"node_usd_h": (usd / row.gpu_count).quantize(QUANTUM)}
                yield _build_rate_row(row, usd, bases) | offer | per_gpu | words

    def _estimate_discount(self, row: CardRow) -> "SpotDiscount":
        """Return what the provider publishes of the type, else the median of its GPU model."""
        published = read_published_spot()
        own = published.get((row.provider, row.region, row.instance_type))
        if own is not None:
            return SpotDiscount(own.savings_pct, f"{own.source}, {own.as_of}")
        models = {r.instance_type: r.gpu_model for r in self.card}
        alike = [p for p in published.values() if models.get(p.instance_type) == row.gpu_model]
        of = row.gpu_model if alike else "all models"
        pct = median_low(p.savings_pct for p in alike or published.values())
        newest = max(alike or published.values(), key=lambda p: p.as_of)
        return SpotDiscount(pct, f"median of {of}, {newest.source}, {newest.as_of}")

    def _net(self, row: CardRow) -> Decimal:
        """Return the list price less the negotiated discount, in USD per node-hour."""
        listed = row.usd_per_hour or Decimal()
        off = Decimal(str(self._settings.discount_pct)) / 100
        return (listed * (1 - off)).quantize(QUANTUM)


class SpotDiscount(msgspec.Struct, frozen=True):
    """The estimated discount of spot nodes, in percent of the on-demand price, and its source."""

    pct: int
    source: str

    def reduce(self, usd: Decimal) -> Decimal:
        """Return a price less the discount."""
        return (usd * (100 - self.pct) / 100).quantize(QUANTUM)

    def describe(self) -> dict[str, Any]:
        """Return the columns that mark a rate as an estimate."""
        return {
            "source": SPOT_ESTIMATE,
            "term": "spot",
            "reference": f"estimate: on-demand less {self.pct} % ({self.source})",
        }


def build_flat_rate(
    usd_per_gpu_hour: Decimal,
    *,
    source: str,
    as_of: datetime,
    reference: str,
    gpu_model: str = "",
    cluster: str = "",
    valid_from: datetime = ALWAYS,
) -> dict[str, Any]:
    """Return one `rate` row that gives every GPU (of a model, of a cluster) the same price."""
    return {
        "source": source,
        "provider": "override",
        "gpu_model": gpu_model,
        "cluster": cluster,
        "term": "on-demand",
        "valid_from": valid_from,
        "as_of": as_of,
        "gpu_count": 1,
        "node_usd_h": usd_per_gpu_hour,
        "gpu_usd_h": usd_per_gpu_hour,
        "reference": reference,
    }


_TEXT_KEY = ("provider", "region", "zone", "instance_type", "gpu_model", "cluster")


def batch(records: Iterable[dict[str, Any]]) -> Batch:
    """Return `rate` rows as a batch; absent key columns mean any, timestamps become UTC."""
    rows = [
        {
            **dict.fromkeys(_TEXT_KEY, ""),
            "valid_to": None,
            **r,
            "gpu_model": get_model_name(r.get("gpu_model")) or "",
        }
        for r in records
    ]
    names = sorted({name for row in rows for name in row})
    return Batch.of("rate", {n: [_convert_plain(row.get(n)) for row in rows] for n in names})


def compute_gpu_bases(card: Sequence[CardRow]) -> dict[str, Decimal]:
    """Return the base USD per GPU-hour of each model.

    The median over the card's on-demand rows of what remains per GPU after cores and memory at
    OpenCost's base prices; OpenCost's 0.95 where nothing remains.
    """
    left: dict[str, list[Decimal]] = {}
    for row in _select_on_demand(card):
        price = row.usd_per_hour or Decimal()
        rest = price - row.vcpu * CPU_BASE - row.memory_gib * MEMORY_BASE
        if rest > 0:
            left.setdefault(row.gpu_model, []).append(rest / row.gpu_count)
    return {model: median(values) for model, values in left.items()}


def find_cheapest(card: Sequence[CardRow]) -> dict[str, CardRow]:
    """Return, by GPU model, the on-demand row with the lowest price per GPU."""
    best: dict[str, CardRow] = {}
    for row in sorted(_select_on_demand(card), key=lambda r: (r.usd_per_hour or 0) / r.gpu_count):
        best.setdefault(row.gpu_model, row)
    return best


def _select_on_demand(card: Sequence[CardRow]) -> list[CardRow]:
    return [r for r in card if r.term == "on-demand" and r.usd_per_hour is not None]


def _offer(row: CardRow) -> tuple[str, str, str, str]:
    return row.offer


def _merge_cards(path: str) -> tuple[CardRow, ...]:
    ours = read_built_in()
    if not path:
        return ours
    theirs = read_card_file(Path(path))
    replaced = {row.offer for row in theirs}
    return (*(row for row in ours if row.offer not in replaced), *theirs)


def _split_parts(row: CardRow, usd: Decimal, bases: dict[str, Decimal]) -> PriceParts:
    base = bases.get(row.gpu_model, GPU_BASE)
    return split(usd, row.gpu_count, row.vcpu, row.memory_gib, gpu_base=base)


def _build_rate_row(row: CardRow, usd: Decimal, bases: dict[str, Decimal]) -> dict[str, Any]:
    parts = _split_parts(row, usd, bases)
    return {
        "gpu_model": row.gpu_model,
        "term": row.term,
        "as_of": row.as_of,
        "gpu_count": row.gpu_count,
        "vcpu": float(row.vcpu),
        "memory_gib": float(row.memory_gib),
        "node_usd_h": parts.total,
        "gpu_usd_h": parts.gpu_usd_h,
        "cpu_usd_h": parts.cpu_usd_h,
        "memory_usd_h": parts.memory_usd_h,
    }


def _convert_plain(value: object) -> object:
    if isinstance(value, datetime):
        return value.astimezone(UTC).replace(tzinfo=None)
    return value
