"""Compute the savings ledger: identified, approved, acted, verified (measured).

Identified: what findings would save (no GPU-hour twice), and what was acted upon; hours in use that
advice could free stand beside it as a bound, in no sum. Approved: a person or a policy allowed it.
Acted: it was done, took effect and was not undone. Verified: measured afterwards, in four kinds of
dollars that are never added up in the bill: cash (the bill falls), served (others ran there),
released (free), sunk (paid in any case).
"""

from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

import msgspec
import pyarrow as pa

from dashboards.figures import analysis_runs, policy_actions
from dashboards.figures.query import ADVICE, HANDLED, Filters, run_query
from dashboards.text import count
from fallow.money import apportion, round_to_cents, sum_bills, sum_known
from fallow.protocols import Views
from fallow.window import Window

MOST = 500
OWNER_KEYS = ("cluster", "namespace", "team", "workload")
"""Names by which findings are known; of a pool, model, node or state they may cover a part."""
KINDS = {
    "cash": "the bill fell",
    "served": "others ran there",
    "released": "free for others, and not used",
    "sunk": "reserved: paid for whatever happens",
}

STAGES_NOTE = (
    "Identified, approved and acted: what the findings of this window would save, the waste until "
    "the act. Verified: measured after the act, from who held the devices then; restarts are taken "
    "off. Predicted: for the same time after the act."
)
"""What the stages count, wherever they stand beside each other."""


class Stages(msgspec.Struct, frozen=True):
    """Cases, GPU-hours and dollars of each stage; dollars None = no part of it has a price."""

    saveable: int
    """The last analysis has it, and no action on it took effect and stands."""
    saveable_gpu_hours: float | None
    """None = not analysed."""
    saveable_usd: Decimal | None
    """In cents, the sum of the clusters'; None = not analysed, or no part of it has a price."""
    cash_usd: Decimal | None
    """Of `saveable_usd`: the bill gets smaller by it."""
    commitment_usd: Decimal | None
    """Of `saveable_usd`: paid in any case until the commitment ends."""
    at_most_gpu_hours: float
    """Beside it: hours in use that advice could free at most; `at_most_usd` is their cost."""
    at_most_usd: Decimal | None
    approved: int
    approved_gpu_hours: float
    approved_usd: Decimal | None
    acted: int
    acted_gpu_hours: float
    acted_usd: Decimal | None
    verified: int
    """Actions of the window that were measured."""
    verified_gpu_hours: float
    verified_usd: Decimal | None
    reversed: int
    """Of the verified actions: their owner reversed them within a day."""
    waiting: int
    """Actions that wait for an approval now, whatever the window."""
    is_analyzed: bool
    """Whether an analyzer ran over any part of the window."""
    gap: analysis_runs.AnalysisGap
    """Hours of the window that were not analysed: what could be saved is at least what it is."""

    @property
    def identified(self) -> int:
        """Return the cases that could be saved or were acted upon; none is both."""
        return self.saveable + self.acted

    @property
    def identified_gpu_hours(self) -> float:
        """Return the hours of both."""
        return (self.saveable_gpu_hours or 0.0) + self.acted_gpu_hours

    @property
    def identified_usd(self) -> Decimal | None:
        """Return the dollars of both."""
        return sum_known([self.saveable_usd, self.acted_usd])

    @property
    def is_whole(self) -> bool:
        """Return whether the last run of each analyzer judged every hour."""
        return bool(self.gap.hours) and not self.gap.missed_hours


def describe_saveable(stages: Stages) -> str:
    """Return how many findings could still save something, and how many were acted upon."""
    if not stages.is_analyzed:
        return "not analysed"
    acted = f"; {stages.acted:,} acted upon" if stages.acted else ""
    return f"{count(stages.saveable, 'saving finding')}{acted}{describe_gap(stages)}"


def describe_gap(stages: Stages) -> str:
    """Return what follows a sum of findings where a part of the window was not analysed."""
    return f"; at least: {stages.gap.summary}" if stages.gap.is_material else ""


def describe_kinds(stages: Stages, usd: Callable[[Decimal], str]) -> str:
    """Return what could be saved by kinds of dollars, cash first, and the bound beside it.

    `usd` formats dollars. "" = nothing could be saved, or it has no price.
    """
    if stages.saveable_usd is None or not (stages.saveable or stages.at_most_gpu_hours):
        return ""
    named = (stages.cash_usd, stages.commitment_usd)
    others = stages.saveable_usd - (sum_known(named) or Decimal())
    cash, capacity, commitment = apportion(
        [stages.cash_usd, others, stages.commitment_usd], stages.saveable_usd
    )
    parts = [f"{usd(cash or Decimal())} in cash"]
    parts += [f"{usd(capacity)} of GPUs that others can use"] if capacity else []
    parts += [f"{usd(commitment)} of commitments that nobody uses"] if commitment else []
    bound = stages.at_most_usd
    more = f"; at most {usd(bound)} more in hours in use" if bound else ""
    return f"{', '.join(parts)}{more}"


def read_handled_findings(views: Views, cluster: str | None) -> list[str]:
    """Return the ids of the findings whose action took effect and was not reversed."""
    table = run_query(views, HANDLED, None, Filters(cluster=cluster))
    return [str(finding) for finding in table["finding"].to_pylist()]


def read_by_owner(
    views: Views, window: Window, filters: Filters, by: Sequence[str]
) -> list[dict[str, Any]]:
    """Return what could be saved by names of owners: gpu_hours, usd.

    `by`: of `OWNER_KEYS`, in this order in the rows. They sum to `read_stages`. A workload that the
    platform owns is `(platform)`.
    """
    table = run_query(views, (*ADVICE, "savings/by_owner"), window, filters, by=[*by])
    rows: list[dict[str, Any]] = table.select([*by, "gpu_hours", "usd"]).to_pylist()
    return rows


def read_stages(views: Views, window: Window, filters: Filters) -> Stages:
    """Return how far the findings of the window progressed."""
    steps = (*ADVICE, "savings/cases", "savings/measured", "savings/stages")
    row = run_query(views, steps, window, filters).to_pylist()[0]
    none = Decimal() if row["is_analyzed"] else None
    row["saveable_usd"] = sum_bills(row["saveable_usd"]) if row["saveable"] else none
    for stage in ("approved", "acted"):
        usd = row[f"{stage}_usd"] if row[stage] else Decimal()
        row[f"{stage}_usd"] = usd and round_to_cents(usd)
    if not row["is_analyzed"]:
        row["saveable_gpu_hours"] = None
    if row["saveable_usd"] is not None:
        row |= {name: row[name] or Decimal() for name in ("cash_usd", "commitment_usd")}
    return Stages(
        **row,
        waiting=policy_actions.count_waiting(views, filters),
        gap=analysis_runs.measure_gap(views, window, filters),
    )


def read_cases(views: Views, window: Window, filters: Filters) -> pa.Table:
    """Return the cases with a request, an approval or an action, the newest first.

    Columns: id (of the finding), stage, team, workload, kind, gpu_hours and usd it would save,
    requested_at, approved_at, acted_at (UTC), result, verified_gpu_hours, verified_usd.
    """
    steps = (*ADVICE, "savings/cases", "savings/listed")
    return _round_column(run_query(views, steps, window, filters, most=MOST), "verified_usd")


def read_verified(views: Views, window: Window, filters: Filters) -> pa.Table:
    """Return the measured savings of actions begun in the window, a row per kind of dollars.

    Columns: kind (`KINDS`), actions, gpu_hours, usd, predicted_gpu_hours, predicted_usd,
    restart_usd (already subtracted), reversed (actions), unknown_gpu_hours (their telemetry ended:
    counted neither way), held_gpu_hours, held_usd.
    """
    return _round_column(
        run_query(views, ("savings/measured", "savings/verified"), window, filters), "usd"
    )


def _round_column(table: pa.Table, name: str) -> pa.Table:
    """Return the table with one column's dollars in cents, which sum to their rounded sum."""
    place = table.schema.get_field_index(name)
    field = table.schema.field(place)
    cents = pa.array(apportion(table.column(place).to_pylist()), field.type)
    return table.set_column(place, field, cents)
