"""The size of the fleet: what a budget in percent is a share of."""

from datetime import datetime, timedelta
from decimal import Decimal
from importlib.resources import files

import pyarrow.compute as pc

from actions.policy.budgets import Spent
from fallow.seams import Views
from fallow.window import Window

BACK = timedelta(hours=1)


def fleet(views: Views, now: datetime) -> Spent:
    """Return the GPUs, workloads, owners and dollars an hour of the hour before a moment."""
    from warehouse.pricing import device_rates  # noqa: PLC0415  (the engine loads in 0.3 s)

    text = (files("actions.facts") / "fleet.sql").read_text(encoding="utf-8").strip()
    since = now - BACK
    row = views.query(text, {"since": since, "until": now}).to_pylist()[0]
    rates = device_rates(views, Window(since, now))
    latest = (
        rates.filter(pc.equal(rates["to_at"], pc.max(rates["to_at"]))) if rates.num_rows else rates
    )
    usd = pc.sum(latest["loaded_usd_h"]).as_py() if latest.num_rows else None
    return Spent(
        fleet_gpus=row["gpus"],
        fleet_workloads=row["workloads"],
        fleet_owners=row["owners"],
        fleet_usd_per_hour=None if usd is None else Decimal(str(round(float(usd), 6))),
    )
