"""What each policy says, how far it may go now, and what a replay over the past gave."""

from typing import Any

from dashboards import data, page
from dashboards.figures import policy_status
from dashboards.page import PageRequest, money

POLICIES = {
    "policy": page.name("policy"),
    "stage": page.name("may it act"),
    "open": page.name("open now", "small"),
    "does": page.number("acts on", "cases of the last plan that it acts on now"),
    "tells": page.number("tells"),
    "holds": page.number("holds"),
    "refuses": page.number("refuses"),
    "usd_per_day": page.usd("USD a day", "of what it does, tells or holds"),
    "actions": page.number("actions ever"),
    "taken_back": page.number("taken back"),
    "stages": page.name("stages", "large"),
    "description": page.name("in words", "large"),
}
TEXT = {
    "policy": page.name("policy"),
    "matches": page.name("is about", "large"),
    "allows": page.name("may act in", "large"),
    "budgets": page.name("budgets", "large"),
    "approvals": page.name("who approves", "small"),
    "declared": page.name("reversals declared"),
    "fingerprint": page.name("text", "small"),
    "source": page.name("file and line", "large"),
}
BACKTESTS = {
    "policy": page.name("policy"),
    "verdict": page.name("reversals", "small"),
    "rate_pct": page.percent("used again"),
    "upper_pct": page.percent("upper end, 95 %"),
    "declared_pct": page.percent("declared"),
    "stops": page.number("would have stopped"),
    "judged": page.number("of them judged"),
    "gpu_hours": page.number("GPU-hours freed"),
    "text": page.name("of which text", "small"),
    "since": page.time_column("from"),
    "until": page.time_column("to"),
    "at": page.time_column("replayed"),
}


def show(request: PageRequest) -> None:
    """Draw the tab."""
    page.card(policies, request)
    page.card(backtests, request)


def policies(request: PageRequest) -> None:
    """List the policies: how far each may act, and its text."""
    rows = data.query(policy_status.list_policies, request.filters).to_pylist()
    if not rows:
        page.show_nothing(
            "No policy is known here.",
            "Put them into the folder that `actions.policies` names; `fallow policy check` says "
            "what is wrong with them, and `fallow up` shows them here with its next analysis.",
        )
        return
    of = {stage: [r for r in rows if r["stage"] == stage] for stage in _STAGES}
    usd_known = [row["usd_per_day"] for row in rows if row["usd_per_day"] is not None]
    page.metrics(
        ("May act", f"{len(of['may act'])}", f"of {len(rows)} policies"),
        ("Not trusted yet", f"{len(of['not trusted yet'])}", "no back-test proved their rate"),
        ("Demoted", f"{len(of['demoted'])}", "owners took back too much"),
        (
            "In their hands",
            money(sum(usd_known) if usd_known else None),
            "a day: done, notified or on hold",
        ),
    )
    page.table([_row(row) for row in rows], POLICIES, table_name="Policies and how far they may go")
    page.heading("What they say")
    page.table([_row(row) for row in rows], TEXT, table_name="Policies in words")


def backtests(request: PageRequest) -> None:
    """List the results of backtests."""
    page.heading("Back-tests")
    rows = data.query(policy_status.backtests, request.filters).to_pylist()
    if not rows:
        page.show_nothing(
            "No policy was replayed over this site's past.",
            "`fallow backtest POLICY --since 30d` does it: a policy that enforces needs one that "
            "proves the rate of reversals it declares.",
        )
        return
    page.table(
        [_backtest(row) for row in rows], BACKTESTS, table_name="Back-tests, the newest first"
    )
    page.note(
        "Of what it would have stopped, the share that was used again within the time that the "
        "policy names. It is met where the upper end of its 95 % interval is within what the "
        "policy declares. A changed text has to be replayed again."
    )


def _row(row: dict[str, Any]) -> dict[str, Any]:
    closed = row["closed"]
    until = f" until {row['opens_at']:%Y-%m-%d %H:%M} UTC" if row["opens_at"] else ""
    within = (row["reversal_within_s"] or 0) / 3600
    stage = row["stage"]
    since = f" since {row['demoted_at']:%Y-%m-%d}" if row["demoted_at"] else ""
    return {
        **row,
        "stage": ": ".join(filter(None, (stage + since, policy_status.by_hand(row)))),
        "open": f"closed{until}: {closed}" if closed else "open",
        "declared": f"{row['reversal_rate'] or 0:.1%} within {within:g} h",
    }


def _backtest(row: dict[str, Any]) -> dict[str, Any]:
    return {
        **row,
        "verdict": "met" if row["met"] else "not met",
        "text": "in force" if row["is_its_text"] else "an older one",
    }


_STAGES = ("may act", "not trusted yet", "demoted", "notifies")
