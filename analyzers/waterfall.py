"""The waterfall: every GPU-hour of the bill belongs to at most one recommendation.

    ledger ──► cells (owner x place x state) ──► recommendations take in order ──► the remainder

Order: the analyzer's place in its `kinds.toml` (others after it, by name); confirmed before
suspected; the most expensive finding first; a finding's recommendations in its own order. Together
these save at most the waste that the finding shows, because they may be alternatives. A
recommendation's *gross* saving is what its claims would get alone. Its *marginal* saving is what
remains after those before it.

Hours in use are no waste: what a recommendation claims of them is an upper bound (*at most*), which
stands apart and is in no sum of savings, unless the bill gets smaller by it (`saving` is cash).
"""

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from decimal import ROUND_DOWN, Decimal
from types import MappingProxyType
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from analyzers.arrays import Ints
from analyzers.queries import load_sql
from analyzers.waterfall_cells import (
    CENT_E8,
    HOUR_US,
    CellGrant,
    LedgerCells,
    convert_to_us,
)
from fallow.finding_kinds import get_rank, read_declarations
from fallow.models import WASTED, Claim, Effort, Evidence, Finding, Recommendation, Saving
from fallow.money import MICRO_HOURS
from fallow.protocols import Views
from fallow.window import Window

_MICRO = Decimal("0.000001")
_NONE: Ints = np.empty(0, dtype=np.int64)
Flags = npt.NDArray[np.bool_]


class SavedAmount(msgspec.Struct, frozen=True):
    """GPU-hours and dollars; `usd` leaves out hours without a price, None = nothing has a price."""

    gpu_hours: float
    usd: Decimal | None
    unpriced_gpu_hours: float = 0.0


class SavingStage(msgspec.Struct, frozen=True):
    """One recommendation in the order: its saving alone, and its additional saving."""

    finding: str
    analyzer: str
    kind: str
    evidence: Evidence
    number: int
    """Which of the finding's recommendations, from 0."""
    verb: str
    target: str
    saving: Saving
    effort: Effort
    gross: SavedAmount
    marginal: SavedAmount
    at_most: SavedAmount
    """The bound beside it: hours in use that it could free at most; in no sum of savings."""
    in_use: SavedAmount
    """The part of the marginal saving in hours in use: cash, as another price."""
    idle_gpu_hours: float
    """The part of the marginal saving in the ledger's state idle."""
    granted: tuple[float, ...]
    """GPU-hours that each of its claims got."""


class SavingsWaterfall(msgspec.Struct, frozen=True):
    """The bill of a window, and the stages of its possible reduction."""

    bill: SavedAmount
    steps: tuple[SavingStage, ...]
    cells: pa.Table
    """The bill's cells: owner, place, state, gpu_us, usd_e8, priced."""
    grants: pa.Table
    """The amounts granted: step, cell (row of `cells`), gpu_us, usd_e8 (the saving), is_bound."""
    unadvised: Mapping[str, float] = MappingProxyType({})
    """By cluster: idle hours of findings without recommendations, which save nothing, but belong
    to a finding."""

    @property
    def unadvised_gpu_hours(self) -> float:
        """The idle hours of findings without recommendations in all clusters."""
        return round(math.fsum(self.unadvised.values()), MICRO_HOURS)

    def list_bills(self) -> list[Decimal]:
        """Return the bill of each cluster where anything has a price, with all its digits."""
        bills = self.list_states().values()
        return [sum(bill.values(), Decimal()) for bill in bills]

    def list_states(self) -> dict[str, dict[str, Decimal]]:
        """Return the bill of each cluster where anything has a price, by the ledger's states."""
        priced = self.cells.filter(self.cells["priced"])
        by_state = priced.group_by(["cluster", "state"]).aggregate([("usd_e8", "sum")])
        sums = by_state.sort_by("state").to_pydict()
        bills: dict[str, dict[str, Decimal]] = {}
        for cluster, state, usd_e8 in zip(
            sums["cluster"], sums["state"], sums["usd_e8_sum"], strict=True
        ):
            bills.setdefault(cluster, {})[state] = Decimal(usd_e8) / CENT_E8
        return bills

    def saved(self, **only: str) -> SavedAmount:
        """Return the total saving of the stages whose fields have the given values."""
        return self._sum_stages(self._savings, only)

    def bounded(self, **only: str) -> SavedAmount:
        """Return what these stages could free at most of hours in use; it is in no saving."""
        return self._sum_stages(self.grants.filter(self.grants["is_bound"]), only)

    @property
    def _savings(self) -> pa.Table:
        return self.grants.filter(pc.invert(self.grants["is_bound"]))

    def _sum_stages(self, grants: pa.Table, only: dict[str, str]) -> SavedAmount:
        wanted = [n for n, s in enumerate(self.steps) if _has_fields(s, only)]
        mask = np.isin(grants["step"].to_numpy(), wanted)
        return _sum_cells(grants.filter(pa.array(mask)), self.cells["priced"].to_numpy())

    def saved_in(self, states: Collection[str]) -> SavedAmount:
        """Return the total saving of the stages in these states of the ledger."""
        savings = self._savings
        state = self.cells["state"].take(savings["cell"])
        mask = pc.is_in(state, pa.array(states, pa.string()))
        return _sum_cells(savings.filter(mask), self.cells["priced"].to_numpy())

    def paid_in(self, states: Collection[str]) -> SavedAmount:
        """Return the cost of these states of the ledger."""
        cells = self.cells.filter(pc.is_in(self.cells["state"], pa.array(states, pa.string())))
        priced = cells["priced"].to_numpy()
        return _build_amount(cells["gpu_us"].to_numpy(), cells["usd_e8"].to_numpy(), priced)

    def remove_findings(self, findings: Collection[str]) -> "SavingsWaterfall":
        """Return it without the savings of these findings; their idle hours stay in a finding.

        The rest keeps its amounts: what an action has freed is not offered to another finding.
        """
        remaining = [n for n, stage in enumerate(self.steps) if stage.finding not in findings]
        step = self.grants["step"].to_numpy()
        stays = np.isin(step, remaining)
        removed = self.grants.filter(pa.array(~stays))
        cells = self.cells.take(removed["cell"])
        amounts = pa.table({"cluster": cells["cluster"], "gpu_us": removed["gpu_us"]})
        idle = amounts.filter(pc.equal(cells["state"], "idle")).group_by("cluster")
        sums = idle.aggregate([("gpu_us", "sum")]).to_pydict()
        unadvised = Counter(self.unadvised)
        for cluster, gpu_us in zip(sums["cluster"], sums["gpu_us_sum"], strict=True):
            unadvised[cluster] += gpu_us / HOUR_US
        grants = self.grants.filter(pa.array(stays))
        numbers = pa.array(np.searchsorted(remaining, step[stays]), grants["step"].type)
        position = grants.schema.get_field_index("step")
        return msgspec.structs.replace(
            self,
            steps=tuple(self.steps[n] for n in remaining),
            grants=grants.set_column(position, "step", numbers),
            unadvised=dict(unadvised),
        )

    def by(self, *names: str) -> list[dict[str, Any]]:
        """Return gpu_hours and usd saved per value of the cells' columns `names`."""
        savings = self._savings
        rows = self.cells.take(savings["cell"])
        keys = {name: rows[name] for name in names}
        table = pa.table({**keys, "gpu_us": savings["gpu_us"], "usd_e8": savings["usd_e8"]})
        sums = table.group_by(list(names)).aggregate([("gpu_us", "sum"), ("usd_e8", "sum")])
        columns = sums.select([*names, "gpu_us_sum", "usd_e8_sum"]).to_pydict().values()
        return [
            {
                **dict(zip(names, values, strict=True)),
                "gpu_hours": round_hours(gpu_us),
                "usd": round_dollars(usd_e8),
            }
            for *values, gpu_us, usd_e8 in zip(*columns, strict=True)
        ]


def build_waterfall(
    views: Views,
    window: Window,
    findings: Sequence[Finding],
    cluster: str | None = None,
    *,
    before: Sequence[Finding] = (),
    among: Sequence[Finding] = (),
) -> SavingsWaterfall:
    """Return the waterfall of findings over the ledger's hours that the window touches.

    `before`, `among`: findings of other analyzers with what an earlier waterfall granted
    (`clip_finding`), which are no stages. Those before keep it; those among take it in their place
    of the order, so that findings get what they would get beside them.
    """
    parameters = {"since": window.start, "until": window.end, "cluster": cluster}
    cells = views.query(load_sql("waterfall_cells"), parameters)
    return apportion_savings(cells, findings, before=before, among=among)


def apportion_savings(
    cells: pa.Table,
    findings: Sequence[Finding],
    *,
    before: Sequence[Finding] = (),
    among: Sequence[Finding] = (),
) -> SavingsWaterfall:
    """Return the waterfall of findings over cells (columns of `waterfall_cells.sql`)."""
    ledger = LedgerCells(cells)
    for earlier in sorted(before, key=_get_sort_key):
        ledger.take_granted(earlier)
    steps: list[SavingStage] = []
    grants: list[CellGrant] = []
    numbers: list[int] = []
    cash: list[bool] = []
    alone = ledger.whole()
    state = ledger.table["state"]
    wasted = pc.is_in(state, pa.array(WASTED, pa.string())).to_numpy()
    idle = pc.equal(state, "idle").to_numpy()
    analyzer = ""
    others = {finding.analyzer for finding in among}
    for finding in sorted([*findings, *among], key=_get_sort_key):
        if finding.analyzer != analyzer:
            analyzer = finding.analyzer
            ledger.begin_turn(takes_hours=_is_hour_taker(analyzer))
        if finding.analyzer in others:
            ledger.take_granted(finding)
            continue
        limit_us = _get_limit_us(finding)
        for number, advice in enumerate(finding.recommendations):
            if not advice.claims:
                continue
            claimed = [(claim, ledger.matching(claim)) for claim in advice.claims]
            gross = [alone.take(claim, rows=rows) for claim, rows in claimed]
            alone.give_back(gross)
            granted = []
            for claim, rows in claimed:
                granted.append(ledger.take(claim, limit_us, rows))
                limit_us -= int(granted[-1].gpu_us.sum())
            grants += granted
            numbers += [len(steps)] * len(granted)
            cash.append(advice.saving == "cash")
            parts = _divide_grants(granted, ledger, wasted, is_cash=cash[-1])
            amounts = (_sum_grants(gross, ledger), *parts)
            step = _build_stage(finding, number, advice, amounts, _sum_idle(granted, idle))
            hours = tuple(round_hours(int(grant.gpu_us.sum())) for grant in granted)
            steps.append(msgspec.structs.replace(step, granted=hours))
    unadvised_us: Counter[str] = Counter()
    for cluster_name, grant in _take_unadvised(findings, ledger):
        unadvised_us[cluster_name] += int(grant.gpu_us.sum())
    bill = _build_amount(ledger.all_us, ledger.all_e8, ledger.priced)
    if bill.usd is not None:  # all digits: the bill is rounded once, for display
        bill = msgspec.structs.replace(bill, usd=Decimal(int(ledger.all_e8.sum())) / CENT_E8)
    table = _build_table(grants, numbers)
    in_use = ~wasted[table["cell"].to_numpy()]
    is_bound = in_use & ~np.array(cash, dtype=bool)[table["step"].to_numpy()]
    return SavingsWaterfall(
        bill=bill,
        steps=tuple(steps),
        cells=ledger.table,
        grants=table.append_column("is_bound", pa.array(is_bound)),
        unadvised={name: round_hours(us) for name, us in unadvised_us.items()},
    )


def add_savings(findings: Sequence[Finding], waterfall: SavingsWaterfall) -> list[Finding]:
    """Return findings whose recommendations have their savings, gross and marginal."""
    steps = {(step.finding, step.number): step for step in waterfall.steps}
    return [
        msgspec.structs.replace(
            finding,
            recommendations=tuple(
                _add_saving(advice, steps.get((finding.id, number)))
                for number, advice in enumerate(finding.recommendations)
            ),
        )
        for finding in findings
    ]


def clip_finding(finding: Finding, part: float) -> Finding:
    """Return a finding with claims only for a part of its hours.

    Claims that a waterfall has granted are cut to the grant: in a longer window the ledger has more
    hours of their kind, which the analysis did not see.
    """
    advised = any(advice.claims for advice in finding.recommendations)
    return msgspec.structs.replace(
        finding,
        gpu_hours=finding.gpu_hours if advised else finding.gpu_hours * part,
        recommendations=tuple(
            msgspec.structs.replace(
                advice, claims=tuple(_clip_claim(claim, part) for claim in advice.claims)
            )
            for advice in finding.recommendations
        ),
    )


def round_hours(gpu_us: int) -> float:
    """Return GPU-hours, rounded down to a millionth: sums of them never exceed the bill."""
    return (gpu_us * 1_000_000 // HOUR_US) / 1_000_000


def round_dollars(usd_e8: int) -> Decimal:
    """Return dollars, rounded down to a millionth."""
    return (Decimal(usd_e8) / CENT_E8).quantize(_MICRO, ROUND_DOWN)


def _is_hour_taker(analyzer: str) -> bool:
    declaration = read_declarations().get(analyzer)
    place = None if declaration is None else declaration.waterfall
    return place is not None and place.takes == "hours"


def _get_sort_key(finding: Finding) -> tuple[Any, ...]:
    return (
        get_rank(read_declarations().get(finding.analyzer)),
        finding.analyzer,
        finding.evidence != "confirmed",
        -(finding.usd or Decimal(0)),
        -finding.gpu_hours,
        finding.id,
    )


def _has_fields(step: SavingStage, only: dict[str, str]) -> bool:
    return all(getattr(step, name) == value for name, value in only.items())


def _build_stage(
    finding: Finding,
    number: int,
    advice: Recommendation,
    amounts: tuple[SavedAmount, SavedAmount, SavedAmount, SavedAmount],
    idle_gpu_hours: float,
) -> SavingStage:
    gross, marginal, at_most, in_use = amounts
    return SavingStage(
        finding=finding.id,
        analyzer=finding.analyzer,
        kind=finding.kind,
        evidence=finding.evidence,
        number=number,
        verb=advice.verb,
        target=advice.target,
        saving=advice.saving,
        effort=advice.effort,
        gross=gross,
        marginal=marginal,
        at_most=at_most,
        in_use=in_use,
        idle_gpu_hours=idle_gpu_hours,
        granted=(),
    )


def _add_saving(advice: Recommendation, step: SavingStage | None) -> Recommendation:
    if step is None:
        return advice
    return msgspec.structs.replace(
        advice,
        gross_gpu_hours=step.gross.gpu_hours,
        gross_usd=step.gross.usd,
        marginal_gpu_hours=step.marginal.gpu_hours,
        marginal_usd=step.marginal.usd,
        marginal_idle_gpu_hours=step.idle_gpu_hours,
        marginal_in_use_gpu_hours=step.in_use.gpu_hours,
        marginal_in_use_usd=step.in_use.usd,
        at_most_gpu_hours=step.at_most.gpu_hours,
        at_most_usd=step.at_most.usd,
        claims=tuple(
            msgspec.structs.replace(claim, granted_gpu_hours=hours)
            for claim, hours in zip(advice.claims, step.granted, strict=True)
        ),
    )


def _get_limit_us(finding: Finding) -> int:
    """Return the most a finding may save.

    It is the finding's waste, or the claims of its largest recommendation if these are more.
    """
    claimed = (sum(convert_to_us(c.gpu_hours) for c in a.claims) for a in finding.recommendations)
    return max(convert_to_us(finding.gpu_hours), *claimed, 0)


def _clip_claim(claim: Claim, part: float) -> Claim:
    if claim.granted_gpu_hours is not None and claim.gpu_hours:
        part *= min(1.0, claim.granted_gpu_hours / claim.gpu_hours)
    usd = None if claim.usd is None else claim.usd * Decimal(repr(part))
    return msgspec.structs.replace(claim, gpu_hours=claim.gpu_hours * part, usd=usd)


def _sum_grants(grants: Sequence[CellGrant], ledger: LedgerCells) -> SavedAmount:
    if len(grants) == 1:  # the most frequent case: tens of thousands of tables are avoided
        (grant,) = grants
        return _build_amount(grant.gpu_us, grant.saved, ledger.priced[grant.rows])
    return _sum_cells(_build_table(grants, [0] * len(grants)), ledger.priced)


def _take_unadvised(
    findings: Sequence[Finding], ledger: LedgerCells
) -> list[tuple[str, CellGrant]]:
    """Return the remaining idle cells of findings without recommendations, with the cluster."""
    return [
        (
            finding.subject.cluster,
            ledger.take(
                Claim(
                    cluster=finding.subject.cluster,
                    namespace=finding.subject.namespace,
                    workload_kind=finding.subject.workload_kind,
                    workload=finding.subject.workload,
                    pool=None,
                    state="idle",
                    gpu_hours=finding.gpu_hours,
                )
            ),
        )
        for finding in findings
        if finding.verdict in ("idle", "partly idle")
        and not any(advice.claims for advice in finding.recommendations)
    ]


def _divide_grants(
    grants: Sequence[CellGrant], ledger: LedgerCells, wasted: Flags, *, is_cash: bool
) -> tuple[SavedAmount, SavedAmount, SavedAmount]:
    """Return the saving, the bound beside it, and the saving's part in hours in use."""
    none = SavedAmount(0.0, Decimal(0))
    rows = np.concatenate([_NONE, *(g.rows for g in grants)])
    in_use = ~wasted[rows]
    if not in_use.any():
        return _sum_grants(grants, ledger), none, none
    gpu_us = np.concatenate([g.gpu_us for g in grants])
    saved = np.concatenate([g.saved for g in grants])

    def build(part: Flags) -> SavedAmount:
        return _build_amount(gpu_us[part], saved[part], ledger.priced[rows[part]])

    if is_cash:
        return _sum_grants(grants, ledger), none, build(in_use)
    return (none if in_use.all() else build(~in_use)), build(in_use), none


def _sum_idle(grants: Sequence[CellGrant], idle: Flags) -> float:
    return round_hours(sum(int(g.gpu_us[idle[g.rows]].sum()) for g in grants))


def _sum_cells(granted: pa.Table, priced: npt.NDArray[np.bool_]) -> SavedAmount:
    us, e8 = granted["gpu_us"].to_numpy(), granted["usd_e8"].to_numpy()
    return _build_amount(us, e8, priced[granted["cell"].to_numpy()])


def _build_amount(gpu_us: Ints, usd_e8: Ints, priced: npt.NDArray[np.bool_]) -> SavedAmount:
    if priced.all():
        return SavedAmount(round_hours(int(gpu_us.sum())), round_dollars(int(usd_e8.sum())))
    any_priced = bool(priced.any())
    return SavedAmount(
        round_hours(int(gpu_us.sum())),
        round_dollars(int(usd_e8.sum())) if any_priced else None,
        round_hours(int(gpu_us[~priced].sum())),
    )


def _build_table(grants: Sequence[CellGrant], steps: Sequence[int]) -> pa.Table:
    none = np.empty(0, dtype=np.int64)
    parts = [(np.full(len(g.rows), n), g) for n, g in zip(steps, grants, strict=True)]
    return pa.table(
        {
            "step": np.concatenate([none, *(n for n, _ in parts)]),
            "cell": np.concatenate([none, *(g.rows for _, g in parts)]),
            "gpu_us": np.concatenate([none, *(g.gpu_us for _, g in parts)]),
            "usd_e8": np.concatenate([none, *(g.saved for _, g in parts)]),
        }
    )
