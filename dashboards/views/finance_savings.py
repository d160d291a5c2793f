"""The savings ledger: identified, approved, acted, verified; verified is measured."""

from decimal import Decimal

from dashboards import charts, data, drawn, page
from dashboards.figures import savings
from dashboards.page import Asked, hours, money

TITLE, ICON, ORDER = "Savings", ":material/savings:", 80

VERIFIED = {
    "kind": page.name("kind", "small"),
    "told": page.name("what it means"),
    "usd": page.usd("saved, USD"),
    "gpu_hours": page.number("GPU-hours"),
    "predicted_usd": page.usd("predicted, USD"),
    "restart_usd": page.usd("restarts, taken off"),
    "held_usd": page.usd("of, USD", "what the devices cost since: savings are a part of it"),
    "unknown_gpu_hours": page.number(
        "unknown GPU-hours", "their telemetry ended: counted neither as saved nor as spent"
    ),
    "actions": page.number("actions"),
    "regretted": page.number("regretted", "taken back by their owner within 24 h"),
}
CASES = {
    "stage": page.name("stage", "small"),
    "workload": page.name("workload", "large"),
    "team": page.name("team", "small"),
    "kind": page.name("found"),
    "usd": page.usd("would save"),
    "verified_usd": page.usd("saved"),
    "asked_at": page.moment("asked"),
    "approved_at": page.moment("approved"),
    "acted_at": page.moment("acted"),
    "result": page.name("result", "small"),
    "id": page.name("finding", "small"),
}


def show(asked: Asked) -> None:
    """Draw the page."""
    page.card(stages, asked)
    page.card(verified, asked)
    page.card(cases, asked)


def stages(asked: Asked) -> None:
    """Draw how far the findings came."""
    made = data.ask(savings.stages, asked.window, asked.filters)
    if not made.identified:
        page.none(
            asked,
            (),
            "Nothing was found to save here.",
            "`fallow analyze` or `fallow up` find waste and store it; a window without waste is "
            "also a result.",
        )
        return
    waiting = f"{made.waiting} wait for approval" if made.waiting else f"{made.approved} cases"
    page.metrics(
        ("Identified", money(made.identified_usd), f"{made.identified} findings"),
        ("Approved", _some(made.approved, made.approved_usd), waiting),
        ("Acted", _some(made.acted, made.acted_usd), f"{made.acted} cases"),
        ("Verified", _some(made.verified, made.verified_usd), hours(made.verified_gpu_hours)),
    )
    page.chart(
        charts.funnel(drawn.staged(made)), "Dollars identified, approved, acted upon and verified"
    )
    page.note(
        "Identified, approved and acted: what the findings of this window would save. Verified: "
        "measured after the act, from who held the devices then; restarts are taken off."
    )


def verified(asked: Asked) -> None:
    """List what was measured, by kind of dollars."""
    page.heading("Verified")
    rows = data.ask(savings.verified, asked.window, asked.filters).to_pylist()
    if not rows:
        page.nothing(
            "No action was measured yet.",
            "Once a policy acts (`fallow plan`, `fallow apply`), what it saved is measured and "
            "stands here.",
        )
        return
    told = [{**row, "told": savings.KINDS.get(row["kind"], "")} for row in rows]
    page.table(told, VERIFIED, called="Verified savings by kind")
    page.note("Only cash lowers the bill. The kinds are never one sum in it.")


def cases(asked: Asked) -> None:
    """List what was asked, approved or done."""
    rows = data.ask(savings.cases, asked.window, asked.filters)
    if rows.num_rows:
        page.heading("Cases")
        page.table(rows, CASES, called="Cases beyond being identified")


def _some(count: int, usd: Decimal | None) -> str:
    return money(usd) if count else money(Decimal())
