"""The SRE's report: findings by dollars over disruption, the fleet now, actions, data quality."""

from decimal import Decimal
from typing import Any

from dashboards import charts
from dashboards.figures import fleet, inbox, savings, spend, standing, waterfall
from dashboards.reports import amounts, asked, parts, told
from dashboards.reports.amounts import count, share, usd
from dashboards.reports.asked import Asked, table
from dashboards.reports.document import (
    Block,
    Column,
    Document,
    Figure,
    Picture,
    Said,
    Section,
    Table,
    Text,
)

NOW = (
    Column("state", "state"),
    Column("gpus", "GPUs", "number"),
    Column("usd_h", "per hour", "usd"),
)
HOLDERS = (
    Column("workload", "who holds them"),
    Column("team", "whose"),
    Column("model", "GPU"),
    Column("idle_gpus", "idle GPUs", "number"),
    Column("idle_usd_h", "per hour", "usd"),
)
NODES = (
    Column("node", "node"),
    Column("pool", "pool"),
    Column("gpus", "GPUs", "number"),
    Column("idle_gpus", "idle", "number"),
    Column("free_gpus", "free", "number"),
    Column("unknown_gpus", "unknown", "number"),
    Column("idle_usd_h", "idle, per hour", "usd"),
)
SAVINGS = (
    Column("analyzer", "found by"),
    Column("evidence", "evidence"),
    Column("saving", "saves"),
    Column("findings", "findings", "number"),
    Column("gpu_hours", "GPU-hours", "number"),
    Column("usd", "USD", "usd"),
)
INBOX = (
    Column("workload", "what"),
    Column("team", "whose"),
    Column("verb", "do"),
    Column("evidence", "evidence"),
    Column("ruling", "the plan says"),
    Column("disruption", "disruption", "number"),
    Column("gpu_hours", "GPU-hours", "number"),
    Column("usd", "saves", "usd"),
)
SAVES = ("gpu_hours", "usd")
COLLECTORS = (
    Column("collector", "collector"),
    Column("cluster", "cluster"),
    Column("looks", "looks", "number"),
    Column("succeeded", "succeeded", "number"),
    Column("targets_down", "targets down", "number"),
    Column("last_success", "last success", "moment"),
    Column("error", "error"),
)


def document(ask: Asked) -> Document:
    """Return the report; its numbers are those of the SRE's pages."""
    views, window, mine = ask.views, ask.window, ask.filters
    now = fleet.states(views, window.end, mine)
    paid = spend.totals(views, window, mine)
    made = waterfall.waterfall(views, window, mine)
    stages = savings.stages(views, window, mine)
    verified = savings.verified(views, window, mine).to_pylist()
    found = inbox.listed(views, window, mine).to_pylist()
    advice = [row for row in found if row["gpu_hours"]]
    looking = standing.looking(views, window.end)
    state = {pace.state: pace for pace in now}
    up = sum(1 for one in looking if not one.down)
    known = 1 - paid.unknown_gpu_hours / paid.gpu_hours if paid.gpu_hours else 0.0
    return Document(
        title="GPU fleet",
        audience="sre",
        window=window,
        made_at=ask.now,
        whose=", ".join(mine.named.values()) or "every cluster",
        figures=(
            Figure(
                "Working now",
                share(_gpus(state, "productive", "low"), sum(p.gpus for p in now)),
                f"{_gpus(state, 'productive', 'low'):,.1f} of {sum(p.gpus for p in now):,.0f} GPUs",
                "good",
            ),
            Figure("Idle now", f"{_pace(state, 'idle')} an hour", _some(state, "idle"), "waste"),
            Figure("Free now", f"{_pace(state, 'free')} an hour", _some(state, "free")),
            Figure(
                "Could be saved",
                usd(stages.identified_usd if stages.identified else Decimal()),
                count(stages.identified, "finding"),
                "warn",
            ),
            Figure("Waiting for approval", f"{stages.waiting:,}", f"{stages.acted:,} acted upon"),
            Figure(
                "Known",
                f"{known:.1%}",
                f"of the GPU-hours; {up} of {count(len(looking), 'collector')} answer",
                "good" if up == len(looking) else "waste",
            ),
        ),
        story=(
            Said("Now", _now(state)),
            Said("Grew nothing", told.fallow(asked.wasted(made), made)),
            Said("To do", told.todo(ask, advice)),
            Said("Done", told.done(stages)),
            Said("Saved", told.saved(verified)),
            Said("Data", _data(looking, paid)),
        ),
        warnings=asked.warnings(ask, paid),
        first=(_daily(ask, made), *parts.first_steps(advice)),
        sections=(
            Section(
                "Findings by dollars over disruption",
                (table(ask, advice, INBOX, total=SAVES), _told()),
            ),
            _fleet(ask, now),
            parts.falls(ask, made),
            *_found(ask, made),
            parts.saving(ask, stages, verified),
            _quality(ask, looking),
            parts.notes(paid),
        ),
    )


def _gpus(state: dict[str, fleet.Pace], *names: str) -> float:
    return sum(state[name].gpus for name in names if name in state)


def _pace(state: dict[str, fleet.Pace], name: str) -> str:
    return usd(state[name].usd_h if name in state else Decimal())


def _some(state: dict[str, fleet.Pace], name: str) -> str:
    return f"{_gpus(state, name):,.1f} GPUs"


def _now(state: dict[str, fleet.Pace]) -> str:
    parts = [
        f"{pace.gpus:,.1f} GPUs {told.WORDS.get(pace.state, pace.state)} ({usd(pace.usd_h)}/h)"
        for pace in state.values()
        if pace.gpus
    ]
    return f"In the last accounted hour {told.listed(parts)}." if parts else "Nothing is known."


def _data(looking: tuple[standing.Looking, ...], paid: spend.Totals) -> str:
    down = [amounts.name(one.collector) for one in looking if one.down]
    said = f"{told.listed(down)} did not answer." if down else "Every collector answers."
    return f"{said} {share(paid.unknown_gpu_hours, paid.gpu_hours)} of the GPU-hours are unknown."


def _daily(ask: Asked, made: waterfall.Waterfall) -> Picture:
    daily = spend.daily(ask.views, ask.window, ask.filters)
    unit = "usd" if made.usd is not None else "gpu_hours"
    return Picture(
        charts.states_over_time(daily, unit, height=170), "Per day, by what the GPUs did"
    )


def _told() -> Text:
    said = (
        "Disruption: one, and one more for each time that an owner took back what was done to the "
        "workload. No GPU-hour is saved twice."
    )
    return Text((said,), small=True)


def _fleet(ask: Asked, now: tuple[fleet.Pace, ...]) -> Section:
    rows: list[dict[str, Any]] = [{n: getattr(p, n) for n in p.__struct_fields__} for p in now]
    until, mine = ask.window.end, ask.filters
    blocks: list[Block] = [table(ask, rows, NOW, total=("gpus", "usd_h"))]
    for figure, columns in ((fleet.holders, HOLDERS), (fleet.nodes, NODES)):
        found = figure(ask.views, until, mine)
        if found.num_rows:
            blocks.append(table(ask, found, columns, most=15))
    return Section("The fleet in the last accounted hour", tuple(blocks))


def _found(ask: Asked, made: waterfall.Waterfall) -> tuple[Section, ...]:
    if not made.savings:
        return ()
    rows = [{n: getattr(s, n) for n in s.__struct_fields__} for s in made.savings]
    return (Section("Who found what", (table(ask, rows, SAVINGS, total=("gpu_hours", "usd")),)),)


def _quality(ask: Asked, looking: tuple[standing.Looking, ...]) -> Section:
    rows = [{n: getattr(one, n) for n in one.__struct_fields__} for one in looking]
    blocks: list[Table | Text] = [
        table(ask, rows, COLLECTORS)
        if rows
        else Text(("No collector looked in the day before the window's end.",))
    ]
    failed = standing.audits(ask.views, ask.window)
    blocks.append(Text((failed or "Every audit of the ledger holds in this window.",)))
    return Section("Data quality", tuple(blocks))
