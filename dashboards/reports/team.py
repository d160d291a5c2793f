"""A team's report: its statement, what of it was idle, its workloads, and what to do."""

from decimal import Decimal
from typing import Any

from dashboards import charts
from dashboards.figures import advised, chargeback, savings, spend, waterfall
from dashboards.reports import amounts, asked, parts, told
from dashboards.reports.amounts import count, hours, share, usd
from dashboards.reports.asked import Asked, table
from dashboards.reports.document import Column, Document, Figure, Picture, Said, Section, Text

STATEMENT = (Column("line", "line"), Column("told", "what it is"), Column("usd", "USD", "usd"))
LINES = (
    Column("workload", "workload"),
    Column("model", "GPU"),
    Column("gpu_hours", "GPU-hours", "number"),
    Column("used_gpu_hours", "used", "number"),
    Column("idle_gpu_hours", "idle", "number"),
    Column("usd_per_gpu_hour", "rate", "usd"),
    Column("usd_gpu", "GPU part", "usd"),
    Column("usd_loaded", "USD", "usd"),
)


def document(ask: Asked) -> Document:
    """Return the report of the team that the filters name."""
    views, window, mine = ask.views, ask.window, ask.filters
    team = str(mine.team)
    bill = next(
        row for row in chargeback.teams(views, window, mine).to_pylist() if row["team"] == team
    )
    lines = chargeback.lines(views, window, mine, team)
    made = waterfall.waterfall(views, window, mine)
    paid = spend.totals(views, window, mine)
    advice = advised.listed(views, window, mine).to_pylist()
    stages = savings.stages(views, window, mine)
    verified = savings.verified(views, window, mine).to_pylist()
    lost = asked.wasted(made)
    saves = sum((row["usd"] for row in advice if row["usd"] is not None), Decimal())
    daily = spend.daily(views, window, mine)
    unit = "usd" if made.usd is not None else "gpu_hours"
    return Document(
        title="GPU statement",
        audience="team",
        window=window,
        made_at=ask.now,
        whose=team,
        figures=(
            Figure("Fully loaded", usd(bill["total_usd"]), "own GPUs, nodes, a share of the free"),
            Figure("GPU only", usd(bill["total_usd_gpu"]), "own GPUs, a share of the free"),
            Figure("Held", hours(bill["gpu_hours"]), count(lines.num_rows, "workload")),
            Figure(
                "Used",
                share(bill["used_gpu_hours"], bill["gpu_hours"]),
                hours(bill["used_gpu_hours"]),
                "good",
            ),
            Figure(
                "Idle",
                usd(bill["idle_usd"]),
                f"{hours(bill['idle_gpu_hours'])}, {share(bill['idle_usd'], bill['usd_loaded'])}",
                "waste",
            ),
            Figure("Could be saved", usd(saves), count(len(advice), "finding"), "warn"),
        ),
        story=(
            Said("Pays", _pays(ask, bill)),
            Said("Grew nothing", told.fallow(lost, made)),
            Said("Most of it", _most(lines.to_pylist())),
            Said("To do", told.todo(ask, advice)),
            Said("Done", told.done(stages)),
            Said("Saved", told.saved(verified)),
        ),
        warnings=asked.warnings(ask, paid),
        first=(
            Picture(charts.states_over_time(daily, unit, height=170), "Per day, by what they did"),
            *parts.first_steps(advice),
        ),
        sections=(
            Section("Statement", (table(ask, _statement(bill), STATEMENT), _how())),
            Section(
                "Workloads",
                (
                    table(
                        ask,
                        lines,
                        LINES,
                        total=(
                            "gpu_hours",
                            "used_gpu_hours",
                            "idle_gpu_hours",
                            "usd_gpu",
                            "usd_loaded",
                        ),
                    ),
                ),
            ),
            parts.falls(ask, made),
            Section("What to do", (*parts.advice(ask, advice), _no())),
            parts.saving(ask, stages, verified),
            parts.notes(paid),
        ),
    )


def _pays(ask: Asked, bill: dict[str, Any]) -> str:
    return (
        f"{asked.spoken(ask.window)}: {usd(bill['total_usd'])} for {hours(bill['gpu_hours'])}; "
        f"{usd(bill['usd_loaded'])} of it for what the team held itself, "
        f"{usd(bill['shared_usd'])} its share of what nobody held."
    )


def _most(lines: list[dict[str, Any]]) -> str:
    said = [
        f"{amounts.name(row['workload'], 48)} ({usd(row['usd_loaded'])}, "
        f"{share(row['idle_gpu_hours'], row['gpu_hours'])} idle)"
        for row in lines[:3]
    ]
    return f"{told.listed(said)}." if said else "Nothing was held."


def _statement(bill: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {"line": "own GPUs", "told": "the GPU part of what it held", "usd": bill["usd_gpu"]},
        {
            "line": "their nodes",
            "told": "CPU, memory and disk beside them",
            "usd": bill["usd_node"],
        },
        {"line": "own, loaded", "told": "the two above", "usd": bill["usd_loaded"]},
        {"line": "of it idle", "told": "held, and not used", "usd": bill["idle_usd"]},
        {"line": "shared", "told": "its part of what nobody held", "usd": bill["shared_usd"]},
        {"line": "fully loaded", "told": "own, loaded, and shared", "usd": bill["total_usd"]},
        {"line": "GPU only", "told": "GPU parts alone, shared too", "usd": bill["total_usd_gpu"]},
    ]


def _how() -> Text:
    said = "The statements of all teams sum to the bill: what nobody held is shared by dollars."
    return Text((said,), small=True)


def _no() -> Text:
    said = (
        "A workload that must stay is kept with the annotation fallow.dev/keep, or with fallow "
        "keep: no policy touches it then. fallow explain says why it was found."
    )
    return Text((said,), small=True)
