"""Replay a policy over the site's own history; each evaluation reads only earlier data.

analyzer ─► past findings (what was found at which time) ─► replay (the same `decide` as live)
         ─► harm (was the workload used again?) ─► verdict (reversals against the declared rate)
"""

from actions.backtest.policy_replay import replay_policy
from actions.backtest.result import AbortedEvaluation, Backtest, BacktestStop

__all__ = ["AbortedEvaluation", "Backtest", "BacktestStop", "replay_policy"]
