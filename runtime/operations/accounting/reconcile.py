"""Compare the savings of a waterfall with the waste of its bill: one line each, and in JSON."""

from decimal import Decimal
from typing import TYPE_CHECKING, Any

import msgspec

from dashboards.figures import savings
from dashboards.figures.query import Filters
from dashboards.figures.reconciliation import Reconciliation, rank_by_dollars
from dashboards.waste_report import format_money
from fallow.models import WASTED
from fallow.money import split_states, sum_bills, sum_known
from fallow.protocols import Views
from fallow.window import Window

if TYPE_CHECKING:
    from analyzers.waterfall import SavingsWaterfall


def compute_reconciliation(waterfall: "SavingsWaterfall") -> "Reconciliation":
    """Return how the steps' savings relate to the waste, and idle hours to findings."""
    saved, wasted = waterfall.saved(), waterfall.paid_in(WASTED)
    of_clusters = [row["usd"] for row in waterfall.by("cluster")]
    at_most = waterfall.bounded()
    in_use = waterfall.saved_in([s for s in _list_states(waterfall) if s not in WASTED])
    return Reconciliation(
        wasted_gpu_hours=wasted.gpu_hours,
        wasted_usd=sum_known(
            bill.get(state)
            for bill in map(split_states, waterfall.list_states().values())
            for state in WASTED
        ),
        saves_gpu_hours=saved.gpu_hours,
        saves_usd=None if saved.usd is None else sum_bills(of_clusters) or Decimal(),
        in_use_gpu_hours=in_use.gpu_hours,
        in_use_usd=in_use.usd,
        in_use_by=rank_by_dollars(
            (s.analyzer, s.in_use.usd) for s in waterfall.steps if s.in_use.gpu_hours
        ),
        at_most_gpu_hours=at_most.gpu_hours,
        at_most_usd=at_most.usd,
        at_most_by=rank_by_dollars(
            (s.analyzer, s.at_most.usd) for s in waterfall.steps if s.at_most.gpu_hours
        ),
        idle_gpu_hours=waterfall.paid_in(["idle"]).gpu_hours,
        idle_claimed_gpu_hours=waterfall.saved_in(["idle"]).gpu_hours
        + waterfall.unadvised_gpu_hours,
    )


def format_lines(sums: "Reconciliation") -> list[str]:
    """Return its sentences, without empty ones."""
    return [line for line in (sums.idle(), sums.savings(format_money)) if line]


def describe_savings(views: Views, window: Window, cluster: str) -> str:
    """Return what stored findings of a cluster would save, cash first; "" = nothing."""
    stages = savings.read_stages(views, window, Filters(cluster=cluster))
    kinds = savings.describe_kinds(stages, format_money)
    return kinds and f"Could be saved: {kinds}"


def document(sums: "Reconciliation") -> dict[str, Any]:
    """Return it for JSON; the parts of the savings and of the idle hours add up."""
    body = msgspec.structs.asdict(sums)
    fields = {name: value for name, value in body.items() if name not in ("divided", "found_at")}
    idle = sums.idle_without_finding_gpu_hours
    return {**fields, "of_waste_usd": sums.of_waste_usd, "idle_without_finding_gpu_hours": idle}


def _list_states(waterfall: "SavingsWaterfall") -> list[str]:
    return sorted(set(waterfall.cells["state"].to_pylist()))
