"""Write the first page in sentences: what was paid, wasted, by which owner, done, to do, saved."""

from decimal import Decimal

import msgspec

from dashboards.figures import analysis_runs, reconciliation, savings, spend, waste, waterfall
from dashboards.reports import amounts, report_request
from dashboards.reports.amounts import format_hours, format_usd, write_usd
from dashboards.reports.report_request import ReportRequest
from dashboards.text import count, format_missing, format_share
from fallow.models import PLATFORM

WORDS = {
    "idle": "allocated and not used",
    "free": "not allocated",
    "lost": "work thrown away",
    "stranded": "free where nothing fits",
    "unavailable": "broken or cordoned",
}
UNPAID = "nothing of it has a price"


def write_paid_sentence(
    request: ReportRequest, waterfall_total: waterfall.GpuHourWaterfall, worked: float
) -> str:
    """Return a sentence about what was paid and how much of it worked."""
    rate = (
        ""
        if waterfall_total.usd is None or not worked
        else " A GPU-hour that worked cost "
        f"{format_usd(waterfall_total.usd / Decimal(repr(worked)))}."
    )
    return (
        f"{report_request.format_window(request.window)}: {write_usd(waterfall_total.usd)} for "
        f"{format_hours(waterfall_total.gpu_hours)}, of which "
        f"{format_share(worked, waterfall_total.gpu_hours)} worked.{rate}"
    )


def write_waste_sentence(
    totals: spend.SpendTotals, waterfall_total: waterfall.GpuHourWaterfall
) -> str:
    """Return a sentence about what was wasted, and how: the most expensive state first."""
    if not totals.wasted_gpu_hours:
        return "Every GPU-hour that was paid for was at work, starting up, or of unknown use."
    steps = [s for s in waterfall_total.steps if s.state in waste.STATES and s.gpu_hours]
    steps.sort(key=lambda s: (-(s.usd or 0), -s.gpu_hours))
    dollars = [totals.state_usd.get(step.state) for step in steps]
    parts = [
        f"{format_hours(step.gpu_hours) if usd is None else format_usd(usd)} {WORDS[step.state]}"
        for step, usd in zip(steps, dollars, strict=True)
    ]
    if totals.wasted_usd is None:
        part = format_share(totals.wasted_gpu_hours, totals.gpu_hours)
        return f"{format_hours(totals.wasted_gpu_hours)}, {part} of the hours: {join_words(parts)}."
    return (
        f"{format_usd(totals.wasted_usd)}, {format_share(totals.wasted_usd, totals.usd)} of the "
        f"bill: {join_words(parts)}."
    )


def use_sentence(paid: spend.SpendTotals) -> str:
    """Return a sentence about busy time and effective utilisation; not measured is not zero."""
    sentence = (
        f"Busy time: {format_missing('no allocated hour has a known use')}."
        if paid.busy is None
        else f"Busy time: {paid.busy:.1%} of the {format_hours(paid.known_gpu_hours)} held whose "
        "use is known."
    )
    if paid.effective is None:
        return (
            f"{sentence} Effective utilisation: not measured (no tensor or SM activity is "
            "exported)."
        )
    return (
        f"{sentence} Effective utilisation: {paid.effective:.1%} of "
        f"{format_hours(paid.measured_gpu_hours)} "
        "measured, by what limits the work over its practical peak."
    )


def format_effective(paid: spend.SpendTotals) -> str:
    """Return the effective utilisation in two words, for a figure."""
    share_text = "not measured" if paid.effective is None else f"{paid.effective:.1%}"
    return f"effective utilisation {share_text}"


def write_reconciliation(
    request: ReportRequest,
    waterfall_total: waterfall.GpuHourWaterfall,
    totals: spend.SpendTotals,
    stages: savings.Stages,
) -> tuple[str, ...]:
    """Return how idle hours relate to findings, and possible savings to waste."""
    sums = reconciliation.reconcile(waterfall_total, totals, stages, request.filters)
    if sums is None:
        return ()
    sums = msgspec.structs.replace(
        sums,
        in_use_by=tuple(map(amounts.name, sums.in_use_by)),
        at_most_by=tuple(map(amounts.name, sums.at_most_by)),
    )
    return tuple(filter(None, (sums.idle(), sums.savings(amounts.format_cents))))


def write_owner_sentence(owners: list[dict[str, object]], total_usd: Decimal | None) -> str:
    """Return a sentence about the owners, the largest first; the platform's is unallocated."""
    team_rows = [r for r in owners if r["name"] != PLATFORM and r["waste_usd"]]
    platform_row = next((r for r in owners if r["name"] == PLATFORM and r["waste_usd"]), None)
    if not team_rows and platform_row is None:
        return "No owner: nothing was wasted." if total_usd is not None else f"Not known: {UNPAID}."
    parts = [
        f"{amounts.name(r['name'], 40)} {_format_waste(r)} "
        f"({format_share(r['waste_usd'], total_usd)})"
        for r in team_rows[:3]
    ]
    if len(team_rows) > len(parts):
        rest = sum((Decimal(str(r["waste_usd"])) for r in team_rows[3:]), Decimal())
        parts.append(f"{count(len(team_rows) - 3, 'other team')} {format_usd(rest)}")
    if platform_row is not None:
        parts.append(f"not allocated (the platform's) {_format_waste(platform_row)}")
    return f"{join_words(parts)}."


def _format_waste(row: dict[str, object]) -> str:
    return format_usd(Decimal(str(row["waste_usd"])))


def write_done_sentence(stages: savings.Stages) -> str:
    """Return a sentence about what was acted upon, was approved, or waits."""
    if not stages.approved and not stages.waiting:
        return "Nothing was acted upon yet: no finding was approved."
    usd = format_usd(stages.acted_usd or Decimal())
    parts = [f"{count(stages.acted, 'finding')} acted upon ({usd} of waste until then)"]
    if stages.approved > stages.acted:
        parts.append(f"{stages.approved - stages.acted} more approved (not done, or undone)")
    if stages.waiting:
        parts.append(f"{stages.waiting} waiting for somebody's approval")
    return f"{join_words(parts)}."


def write_advice_sentence(
    request: ReportRequest, steps: list[dict[str, object]], workloads: int
) -> str:
    """Return a sentence about the first steps of so many workloads, or why there is no advice."""
    if not steps:
        absence = analysis_runs.explain_absence(request.views, request.window)
        return absence.sentence("Nothing is advised: no finding touches this window.")
    parts = [
        f"{row['verb']}: {amounts.name(row['workload'], 48)}{_format_owner(row)} "
        f"({_format_saving(row)})"
        for row in steps
    ]
    rest = max(0, workloads - sum(int(str(row["workloads"])) for row in steps))
    return f"{'; '.join(parts)}{f'; and {rest:,} more' if rest else ''}."


def _format_owner(row: dict[str, object]) -> str:
    return f" of {amounts.name(row['team'], 32)}" if row["team"] else ""


def _format_saving(row: dict[str, object]) -> str:
    if row["usd"] is None:
        return format_hours(float(str(row["gpu_hours"])))
    return format_usd(Decimal(str(row["usd"])))


def write_savings_sentence(verified: list[dict[str, object]]) -> str:
    """Return a sentence about the measured savings, in each kind of dollars."""
    if not verified:
        return "Nothing yet: a saving counts once it was measured after the act."
    parts = [
        f"{amounts.format_cents(r['usd'])} {r['kind']} ({savings.KINDS.get(str(r['kind']), '')})"
        for r in verified
    ]
    return f"{join_words(parts)}; measured, restarts taken off. Only cash lowers the bill."


def join_words(parts: list[str]) -> str:
    """Return the parts as an enumeration."""
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
