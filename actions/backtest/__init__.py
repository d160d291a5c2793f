"""Replay a policy over the site's own history, with data only up to each moment.

analyzer ─► Past (what was found when) ─► replay (the same `decide`, as it would have gone)
         ─► harm (was it used again?) ─► verdict (reversals against what the policy declares)
"""

from actions.backtest.policy_replay import backtest
from actions.backtest.result import Backtest, BacktestStop

__all__ = ["Backtest", "BacktestStop", "backtest"]
