"""Parts that several audiences' reports share: states, advice, savings, how to read it all."""

from dashboards import charts, drawn
from dashboards.figures import savings, spend, waterfall
from dashboards.reports.asked import Asked, table
from dashboards.reports.document import Block, Column, Picture, Section, Table, Text

FIRST = 6
"""Lines of advice on the first page."""
STATES = (
    Column("state", "state"),
    Column("meaning", "what it means"),
    Column("gpu_hours", "GPU-hours", "number"),
    Column("share", "of the paid", "percent"),
    Column("usd", "USD", "usd"),
)
ADVICE = (
    Column("workload", "what"),
    Column("team", "whose"),
    Column("verb", "do"),
    Column("effort", "effort"),
    Column("evidence", "evidence"),
    Column("gpu_hours", "GPU-hours", "number"),
    Column("usd", "saves", "usd"),
)
STAGES = (
    Column("stage", "stage"),
    Column("cases", "cases", "number"),
    Column("gpu_hours", "GPU-hours", "number"),
    Column("usd", "USD", "usd"),
)
VERIFIED = (
    Column("kind", "kind of dollars"),
    Column("told", "what it means"),
    Column("actions", "actions", "number"),
    Column("gpu_hours", "GPU-hours", "number"),
    Column("usd", "saved", "usd"),
    Column("predicted_usd", "predicted", "usd"),
    Column("restart_usd", "restarts", "usd"),
    Column("regretted", "regretted", "number"),
)
CASES = (
    Column("workload", "what"),
    Column("team", "whose"),
    Column("stage", "stage"),
    Column("result", "result"),
    Column("usd", "would save", "usd"),
    Column("verified_usd", "saved", "usd"),
    Column("id", "finding"),
)


def falls(ask: Asked, made: waterfall.Waterfall) -> Section:
    """Return how the paid hours fall, state by state."""
    rows = [
        {
            "state": s.state,
            "meaning": s.meaning,
            "gpu_hours": s.gpu_hours,
            "share": 100 * s.gpu_hours / made.gpu_hours,
            "usd": s.usd,
        }
        for s in made.steps
    ]
    return Section(
        "What was paid, and what the GPUs did",
        (
            Picture(
                charts.fall(drawn.fall(made), "GPU-hours", height=220),
                "From paid to working GPU-hours",
            ),
            table(ask, rows, STATES, total=("gpu_hours", "usd")),
        ),
    )


def first_steps(rows: list[dict[str, object]]) -> tuple[Block, ...]:
    """Return the few things to do first, for the first page."""
    columns = tuple(c for c in ADVICE if c.name in ("workload", "team", "verb", "usd"))
    return (Table(columns, rows[:FIRST], max(0, len(rows) - FIRST)),) if rows else ()


def advice(ask: Asked, rows: list[dict[str, object]]) -> tuple[Block, ...]:
    """Return what is advised, what saves most first."""
    if not rows:
        return (Text(("No finding touches this window: fallow analyze or fallow up find waste.",)),)
    return (
        table(ask, rows, ADVICE, total=("gpu_hours", "usd")),
        Text(
            ("No GPU-hour is saved twice: each line saves this much on top of those above it.",),
            small=True,
        ),
    )


def saving(ask: Asked, stages: savings.Stages, verified: list[dict[str, object]]) -> Section:
    """Return how far findings came, and what was measured."""
    rows = [
        {
            "stage": stage,
            "cases": getattr(stages, stage),
            "gpu_hours": getattr(stages, f"{stage}_gpu_hours"),
            "usd": getattr(stages, f"{stage}_usd"),
        }
        for stage in ("identified", "approved", "acted", "verified")
    ]
    blocks: list[Block] = [table(ask, rows, STAGES)]
    if stages.identified_usd:
        picture = charts.funnel(drawn.staged(stages))
        blocks.insert(0, Picture(picture, "Dollars identified, approved, acted upon and verified"))
    if verified:
        told = [{**row, "told": savings.KINDS.get(str(row["kind"]), "")} for row in verified]
        blocks.append(table(ask, told, VERIFIED))
    cases = savings.cases(ask.views, ask.window, ask.filters)
    if cases.num_rows:
        blocks.append(table(ask, cases, CASES))
    return Section("What was done, and what it saved", tuple(blocks))


def notes(paid: spend.Totals) -> Section:
    """Return how the numbers are to be read."""
    priced = f"{paid.price_as_of:%Y-%m-%d}" if paid.price_as_of else "no date is known"
    return Section(
        "How to read this",
        (
            Text(
                (
                    (
                        "All dollars are US dollars, fully loaded unless said otherwise: a GPU "
                        f"costs its part of the whole node. The newest price is of {priced}."
                    ),
                    (
                        "Idle: held and not used, shown by independent witnesses. Free: held by "
                        "nobody. Stranded: free where nothing fits. Lost: work thrown away. "
                        "Unknown hours count neither as waste nor as work."
                    ),
                    (
                        "What could be saved is part of the bill and never more than it. Cash "
                        "lowers the bill; capacity goes to others; what is committed is paid for "
                        "whatever happens."
                    ),
                    "Every number is on the dashboard's pages too; fallow explain says why.",
                ),
                points=True,
                small=True,
            ),
        ),
    )
