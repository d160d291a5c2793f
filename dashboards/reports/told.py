"""The first page in sentences: what was paid, what grew nothing, whose, done, to do and saved."""

from decimal import Decimal

from dashboards.figures import analyzed, savings, waterfall
from dashboards.figures.asking import PLATFORM
from dashboards.reports import amounts, asked
from dashboards.reports.amounts import count, hours, share, usd
from dashboards.reports.asked import Asked

WORDS = {
    "idle": "held and not used",
    "free": "held by nobody",
    "lost": "work thrown away",
    "stranded": "free where nothing fits",
    "unavailable": "broken or cordoned",
}
UNPAID = "nothing of it has a price"


def paid(ask: Asked, made: waterfall.Waterfall, worked: float) -> str:
    """Say what was paid and how much of it worked."""
    rate = (
        ""
        if made.usd is None or not worked
        else f" A GPU-hour that worked cost {usd(made.usd / Decimal(repr(worked)))}."
    )
    return (
        f"{asked.spoken(ask.window)}: {usd(made.usd)} for {hours(made.gpu_hours)}, of which "
        f"{share(worked, made.gpu_hours)} worked.{rate}"
    )


def fallow(lost: asked.Wasted, made: waterfall.Waterfall) -> str:
    """Say what grew nothing, and how."""
    if not lost.gpu_hours:
        return "Every GPU-hour that was paid for was at work, starting up, or of unknown use."
    parts = [
        f"{usd(step.usd)} {WORDS[step.state]}"
        if step.usd is not None
        else f"{hours(step.gpu_hours)} {WORDS[step.state]}"
        for step in lost.steps
        if step.gpu_hours
    ]
    part = (
        share(lost.usd, made.usd) if lost.usd is not None else share(lost.gpu_hours, made.gpu_hours)
    )
    return f"{usd(lost.usd)}, {part} of the bill: {listed(parts)}."


def whose(owners: list[dict[str, object]], whole: Decimal | None) -> str:
    """Say whose it is, the most first; what nobody held is the platform's."""
    held = [r for r in owners if r["name"] != PLATFORM and r["waste_usd"]]
    nobody = next((r for r in owners if r["name"] == PLATFORM and r["waste_usd"]), None)
    if not held and nobody is None:
        return "Nobody's: nothing was wasted." if whole is not None else f"Not known: {UNPAID}."
    parts = [
        f"{amounts.name(r['name'], 40)} {_waste(r)} ({share(r['waste_usd'], whole)})"
        for r in held[:3]
    ]
    if len(held) > len(parts):
        rest = sum((Decimal(str(r["waste_usd"])) for r in held[3:]), Decimal())
        parts.append(f"{count(len(held) - 3, 'other team')} {usd(rest)}")
    if nobody is not None:
        parts.append(f"nobody's, so the platform's, {_waste(nobody)}")
    return f"{listed(parts)}."


def _waste(row: dict[str, object]) -> str:
    return usd(Decimal(str(row["waste_usd"])))


def done(stages: savings.Stages) -> str:
    """Say what was acted upon, approved, or waits."""
    if not stages.approved and not stages.waiting:
        return "Nothing was acted upon yet: no finding was approved."
    parts = [f"{count(stages.acted, 'finding')} acted upon ({usd(stages.acted_usd or Decimal())})"]
    if stages.approved > stages.acted:
        parts.append(f"{stages.approved - stages.acted} more approved")
    if stages.waiting:
        parts.append(f"{stages.waiting} waiting for somebody's approval")
    return f"{listed(parts)}."


def todo(asked: Asked, advice: list[dict[str, object]]) -> str:
    """Say what to do first, or why nothing is advised."""
    if not advice:
        absence = analyzed.absence(asked.views, asked.window)
        return absence.said("Nothing is advised: no finding touches this window.")
    parts = [
        f"{row['verb']} {amounts.name(row['workload'], 48)} of {amounts.name(row['team'], 32)} "
        f"({_saves(row)})"
        for row in advice[:3]
    ]
    rest = len(advice) - len(parts)
    return f"{'; '.join(parts)}{f'; and {rest:,} more' if rest else ''}."


def _saves(row: dict[str, object]) -> str:
    if row["usd"] is None:
        return hours(float(str(row["gpu_hours"])))
    return usd(Decimal(str(row["usd"])))


def saved(verified: list[dict[str, object]]) -> str:
    """Say what was measured, in each kind of dollars."""
    if not verified:
        return "Nothing yet: a saving counts once it was measured after the act."
    parts = [
        f"{amounts.written(r['usd'], 'usd')} {r['kind']} ({savings.KINDS.get(str(r['kind']), '')})"
        for r in verified
    ]
    return f"{listed(parts)}; measured, restarts taken off. Only cash lowers the bill."


def listed(parts: list[str]) -> str:
    """Join parts as people list them."""
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
