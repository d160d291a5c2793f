"""Finance's report: what was paid, what grew nothing, whose, what was done, to do and saved."""

from decimal import Decimal

from dashboards import charts, drawn
from dashboards.figures import (
    advised,
    anomalies,
    bridge,
    chargeback,
    commitments,
    savings,
    spend,
    units,
    waste,
    waterfall,
)
from dashboards.reports import asked, parts, told
from dashboards.reports.amounts import count, hours, share, usd
from dashboards.reports.asked import Asked, table
from dashboards.reports.document import (
    Block,
    Column,
    Document,
    Figure,
    Picture,
    Said,
    Section,
    Text,
)

WASTE = (
    Column("name", "team"),
    Column("waste_usd", "grew nothing", "usd"),
    Column("waste_pct", "of its hours", "percent"),
    Column("idle_usd", "idle", "usd"),
    Column("lost_usd", "lost", "usd"),
    Column("free_usd", "free", "usd"),
    Column("stranded_usd", "stranded", "usd"),
    Column("unavailable_usd", "broken", "usd"),
    Column("usd", "paid", "usd"),
)
TEAMS = (
    Column("team", "team"),
    Column("total_usd", "fully loaded", "usd"),
    Column("total_usd_gpu", "GPU only", "usd"),
    Column("usd_gpu", "own GPUs", "usd"),
    Column("usd_node", "node part", "usd"),
    Column("shared_usd", "shared", "usd"),
    Column("idle_usd", "of own, idle", "usd"),
    Column("gpu_hours", "GPU-hours", "number"),
)
BRIDGE = (Column("step", "step"), Column("told", "what it is"), Column("usd", "USD", "usd"))
COMMITTED = (
    Column("name", "commitment"),
    Column("instance_type", "of"),
    Column("nodes", "nodes", "number"),
    Column("utilisation", "used", "percent"),
    Column("coverage", "covers", "percent"),
    Column("break_even", "break-even", "percent"),
    Column("unused_usd", "did not run", "usd"),
    Column("end", "ends", "moment"),
)
BUDGETS = (
    Column("team", "team"),
    Column("stands", "stands"),
    Column("budget", "budget", "usd"),
    Column("usd", "paid so far", "usd"),
    Column("forecast", "forecast", "usd"),
)
UNITS = (
    Column("name", "team"),
    Column("usd_per_productive_gpu_hour", "a productive GPU-hour", "usd"),
    Column("usd_per_gpu_hour", "a paid GPU-hour", "usd"),
    Column("productive_gpu_hours", "productive GPU-hours", "number"),
    Column("gpu_hours", "GPU-hours", "number"),
    Column("usd", "USD", "usd"),
)


def document(ask: Asked) -> Document:
    """Return the report; its numbers are those of Finance's pages."""
    views, window, mine = ask.views, ask.window, ask.filters
    made = waterfall.waterfall(views, window, mine)
    paid = spend.totals(views, window, mine)
    stages = savings.stages(views, window, mine)
    owners = waste.by_owner(views, window, mine, "team")
    advice = advised.listed(views, window, mine)
    verified = savings.verified(views, window, mine)
    month = spend.month(views, window.end, mine, ask.settings.finance.usd_per_month)
    lost = asked.wasted(made)
    worked = next((s.gpu_hours for s in made.steps if s.state == "productive"), 0.0)
    saved = [row["usd"] for row in verified.to_pylist() if row["usd"] is not None]
    cash = [r["usd"] for r in verified.to_pylist() if r["kind"] == "cash" and r["usd"] is not None]
    figures = (
        Figure("Paid", usd(made.usd), hours(made.gpu_hours)),
        Figure("Worked", share(worked, made.gpu_hours), hours(worked), "good"),
        Figure(
            "Grew nothing",
            usd(lost.usd),
            f"{hours(lost.gpu_hours)}, {share(lost.gpu_hours, made.gpu_hours)}",
            "waste",
        ),
        Figure(
            "Could be saved",
            usd(stages.identified_usd if stages.identified else Decimal()),
            count(stages.identified, "finding"),
            "warn",
        ),
        Figure(
            "Saved, as measured",
            usd(sum(saved, Decimal())),
            f"{usd(sum(cash, Decimal()))} of it cash" if saved else "nothing was measured yet",
            "good",
        ),
        Figure(f"{month.start:%B} will end at", usd(month.forecast), _budgeted(month)),
    )
    story = (
        Said("Paid", told.paid(ask, made, worked)),
        Said("Grew nothing", told.fallow(lost, made)),
        Said("Whose", told.whose(owners.to_pylist(), lost.usd)),
        Said("Done", told.done(stages)),
        Said("To do", told.todo(ask, advice.to_pylist())),
        Said("Saved", told.saved(verified.to_pylist())),
    )
    daily = spend.daily(views, window, mine)
    unit = "usd" if made.usd is not None else "gpu_hours"
    return Document(
        title="GPU spend and waste",
        audience="finance",
        window=window,
        made_at=ask.now,
        whose=", ".join(mine.named.values()) or "every cluster",
        figures=figures,
        story=story,
        warnings=asked.warnings(ask, paid),
        first=(
            Picture(
                charts.states_over_time(daily, unit, height=190),
                "Per day, by what the GPUs did",
            ),
            *parts.first_steps(advice.to_pylist()),
        ),
        sections=(
            parts.falls(ask, made),
            *_changed(ask),
            _owned(ask, owners.to_pylist()),
            _charged(ask),
            Section("What to do", parts.advice(ask, advice.to_pylist())),
            parts.saving(ask, stages, verified.to_pylist()),
            *_planned(ask, month),
            *_committed(ask),
            _units(ask),
            parts.notes(paid),
        ),
    )


def _changed(ask: Asked) -> tuple[Section, ...]:
    made = bridge.bridge(ask.views, ask.window, ask.filters)
    if made is None:
        return ()
    rows = [
        {"step": "before", "told": asked.spoken(made.before), "usd": made.usd_before},
        *({"step": s, "told": told, "usd": getattr(made, s)} for s, told in drawn.BRIDGE.items()),
        {"step": "after", "told": asked.spoken(made.after), "usd": made.usd_after},
    ]
    return (
        Section(
            "Why it cost more or less than the time before",
            (
                Picture(
                    charts.fall(drawn.bridged(made), "USD", height=200),
                    "From the bill before to this one",
                ),
                table(ask, rows, BRIDGE),
            ),
        ),
    )


def _owned(ask: Asked, owners: list[dict[str, object]]) -> Section:
    named = [row for row in owners if row["waste_usd"]][:10]
    parts = [
        {"name": row["name"], "state": state, "usd": row[f"{state}_usd"]}
        for row in named
        for state in waste.STATES
        if row[f"{state}_usd"]
    ]
    blocks: list[Block] = []
    if parts:
        chart = charts.stacked_bars(
            parts, names=[str(r["name"]) for r in named], title="USD that grew nothing"
        )
        blocks.append(Picture(chart, "Dollars that grew nothing, by team and state"))
    sums = [c.name for c in WASTE if c.kind == "usd"]
    return Section("Whose it is", (*blocks, table(ask, owners, WASTE, total=sums)))


def _charged(ask: Asked) -> Section:
    rows = chargeback.teams(ask.views, ask.window, ask.filters)
    sums = [c.name for c in TEAMS if c.name != "team"]
    told = Text(
        (
            (
                "Fully loaded: own GPUs, their part of the node, and a share of what "
                "nobody held in proportion to the team's dollars; the platform's line is that "
                "share with its sign turned, so that all lines sum to the bill."
            ),
        ),
        small=True,
    )
    return Section("Chargeback by team", (table(ask, rows, TEAMS, total=sums, most=60), told))


def _planned(ask: Asked, month: spend.Month) -> tuple[Section, ...]:
    blocks: list[Block] = []
    if month.path and month.forecast is not None:
        chart = charts.month_end(drawn.month(month), height=180)
        blocks.append(Picture(chart, f"{month.start:%B}: paid so far, then expected"))
        blocks.append(Text((f"Line: {month.method}.",), small=True))
    planned = ask.settings.finance.teams_usd_per_month
    if planned:
        made = anomalies.budgets(ask.views, ask.window.end, ask.filters, planned)
        rows = [
            {**{n: getattr(b, n) for n in b.__struct_fields__}, "stands": b.stands} for b in made
        ]
        blocks.append(table(ask, rows, BUDGETS))
    return (Section("The month and its budgets", tuple(blocks)),) if blocks else ()


def _committed(ask: Asked) -> tuple[Section, ...]:
    promised = tuple(ask.settings.prices.commitments)
    made = commitments.commitments(ask.views, ask.window, ask.filters, promised) if promised else ()
    if not made:
        return ()
    rows = [
        {
            **{n: getattr(one, n) for n in one.__struct_fields__},
            **{
                n: None if getattr(one, n) is None else 100 * getattr(one, n)
                for n in ("utilisation", "coverage", "break_even")
            },
        }
        for one in made
    ]
    return (Section("Commitments", (table(ask, rows, COMMITTED),)),)


def _units(ask: Asked) -> Section:
    rows = units.by_owner(ask.views, ask.window, ask.filters, "team")
    return Section("What an hour that worked cost", (table(ask, rows, UNITS),))


def _budgeted(month: spend.Month) -> str:
    if month.budget is not None and month.forecast is not None:
        return f"budget {usd(month.budget)}, {share(month.forecast, month.budget)} of it"
    if month.low is not None and month.low != month.high:
        return f"8 in 10: {usd(month.low)} to {usd(month.high)}"
    return "no budget is set"
