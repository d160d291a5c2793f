"""Price an hour of an owned GPU: amortised capital, energy and running cost."""

from collections.abc import Callable
from datetime import datetime
from decimal import Decimal

import msgspec

from collectors.prices.parts import QUANTUM
from collectors.prices.rate_card import batch, get_utc_now
from fallow.errors import UsageError
from fallow.money import MOST_USD_H
from fallow.settings.prices import ALWAYS
from fallow.tables import Batch
from fallow.window import Window

HOURS_PER_YEAR = Decimal(8760)


class AmortisedCost(msgspec.Struct, frozen=True):
    """USD per GPU-hour by cause."""

    capital: Decimal
    energy: Decimal
    running: Decimal

    @property
    def total(self) -> Decimal:
        """Return USD per GPU-hour to eight decimals."""
        return (self.capital + self.energy + self.running).quantize(QUANTUM)


class OnPrem:
    """Amortised price of a server that the site owns (telemetry-and-waste.md#money).

    (capex - residual) / (life hours x GPUs x availability) + kW x PUE x USD/kWh / GPUs
    + yearly running cost / (8760 h x GPUs).
    """

    def __init__(
        self,
        *,
        capex_usd: Decimal,
        gpus: int,
        years: Decimal = Decimal(4),
        residual_usd: Decimal = Decimal(0),
        availability: Decimal = Decimal("0.97"),
        kw: Decimal = Decimal(0),
        pue: Decimal = Decimal("1.3"),
        usd_per_kwh: Decimal = Decimal("0.10"),
        running_pct_per_year: Decimal = Decimal(0),
        gpu_model: str = "",
        instance_type: str = "",
        cluster: str = "",
        valid_from: datetime | None = None,
        clock: Callable[[], datetime] = get_utc_now,
    ) -> None:
        """Take one server's figures; empty model, type and cluster mean any.

        `valid_from` is when its price began; None = not said.

        `kw` is the power of the server; `running_pct_per_year` is support, space and staff in
        percent of capex.

        Raises:
            UsageError: a figure is not possible.
        """
        legal = {
            "capex_usd": capex_usd > 0,
            "gpus": gpus > 0,
            "years": years > 0,
            "residual_usd": 0 <= residual_usd <= capex_usd,
            "availability": 0 < availability <= 1,
            "kw": kw >= 0,
            "pue": pue >= 1,
            "usd_per_kwh": usd_per_kwh >= 0,
            "running_pct_per_year": running_pct_per_year >= 0,
        }
        wrong = [name for name, fits in legal.items() if not fits]
        if wrong:
            raise UsageError(
                f"on-prem price: {', '.join(wrong)} out of range",
                hint="capex, gpus, years > 0; 0 <= residual <= capex; 0 < availability <= 1; "
                "pue >= 1; the others >= 0",
            )
        self._gpus = gpus
        self._where = {"gpu_model": gpu_model, "instance_type": instance_type, "cluster": cluster}
        self._valid_from = valid_from or ALWAYS
        self._clock = clock
        lifetime_hours = years * HOURS_PER_YEAR
        self.cost = AmortisedCost(
            capital=(capex_usd - residual_usd) / (lifetime_hours * gpus * availability),
            energy=kw * pue * usd_per_kwh / gpus,
            running=capex_usd * running_pct_per_year / 100 / (HOURS_PER_YEAR * gpus),
        )
        if self.cost.total * gpus >= MOST_USD_H:
            raise UsageError(
                f"on-prem price: {self.cost.total} USD per GPU-hour is no price",
                hint="check capex_usd, gpus, years and kw of prices.on_prem",
            )

    def rates(self, window: Window) -> Batch:  # noqa: ARG002  (the price holds for the whole life)
        """Return the one `rate` row of this server: term `amortised`, all of it for its GPUs."""
        usd = self.cost.total
        return batch(
            [
                {
                    **self._where,
                    "source": "on-prem",
                    "provider": "on-prem",
                    "term": "amortised",
                    "valid_from": self._valid_from,
                    "as_of": self._clock(),
                    "gpu_count": self._gpus,
                    "node_usd_h": usd * self._gpus,
                    "gpu_usd_h": usd,
                    "reference": f"amortised: capital {self.cost.capital:.4f} + energy "
                    f"{self.cost.energy:.4f} + running {self.cost.running:.4f} USD/GPU-h",
                }
            ]
        )
