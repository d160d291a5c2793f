"""What each policy says, how far it may go now, and what a replay over the past gave."""

from typing import Any

from dashboards import data, page
from dashboards.figures import policy_status
from dashboards.page import PageRequest, format_money

POLICIES = page.read_columns("actions_policies/policies")
TEXT = page.read_columns("actions_policies/text")
BACKTESTS = page.read_columns("actions_policies/backtests")


def show(request: PageRequest) -> None:
    """Draw the tab."""
    page.show_card(show_policies, request)
    page.show_card(show_backtests, request)


def show_policies(request: PageRequest) -> None:
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
    page.show_metrics(
        ("May act", f"{len(of['may act'])}", f"of {len(rows)} policies"),
        ("Not trusted yet", f"{len(of['not trusted yet'])}", "no back-test proved their rate"),
        ("Set back to notices", f"{len(of['demoted'])}", "owners took back too much"),
        (
            "Matched by policies",
            format_money(sum(usd_known) if usd_known else None),
            "in a whole day, held ones too",
        ),
    )
    page.show_table(
        [_build_row(row) for row in rows], POLICIES, table_name="Policies and how far they may go"
    )
    page.show_heading("What they say")
    page.show_table([_build_row(row) for row in rows], TEXT, table_name="Policies in words")


def show_backtests(request: PageRequest) -> None:
    """List the results of backtests."""
    page.show_heading("Back-tests")
    rows = data.query(policy_status.read_backtests, request.filters).to_pylist()
    if not rows:
        page.show_nothing(
            "No policy was replayed over this site's past.",
            "`fallow backtest POLICY --since 30d` does it: a policy that enforces needs one that "
            "proves the rate of reversals it declares.",
        )
        return
    page.show_table(
        [_build_backtest_row(row) for row in rows],
        BACKTESTS,
        table_name="Back-tests, the newest first",
    )
    page.note(
        "Of what it would have stopped, the share that was used again within the time that the "
        "policy names. It is met where the upper end of its 95 % interval is within what the "
        "policy declares. A changed text has to be replayed again."
    )


def _build_row(row: dict[str, Any]) -> dict[str, Any]:
    closed = row["closed"]
    until = f" until {row['opens_at']:%Y-%m-%d %H:%M} UTC" if row["opens_at"] else ""
    within = (row["reversal_within_s"] or 0) / 3600
    stage = row["stage"]
    since = f" since {row['demoted_at']:%Y-%m-%d}" if row["demoted_at"] else ""
    return {
        **row,
        "stage": ": ".join(filter(None, (stage + since, policy_status.explain_by_hand(row)))),
        "open": f"closed{until}: {closed}" if closed else "open",
        "declared": f"{row['reversal_rate'] or 0:.1%} within {within:g} h",
    }


def _build_backtest_row(row: dict[str, Any]) -> dict[str, Any]:
    return {
        **row,
        "verdict": "met" if row["met"] else "not met",
        "text": "in force" if row["is_its_text"] else "an older one",
    }


_STAGES = ("may act", "not trusted yet", "demoted", "notifies")
