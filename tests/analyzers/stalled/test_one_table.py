"""What a spin is stands in one table, which ledger, sizing and stalled jobs read."""

from analyzers.queries import load_rows
from analyzers.stalled.limits import read_limits
from analyzers.work import SPIN as OF_HOURS
from warehouse.signals import SPIN


def test_no_limit_of_a_spin_stands_twice() -> None:
    own = {row["name"] for row in load_rows("stalled/limits")}
    assert not own & SPIN.keys()
    assert SPIN.items() <= read_limits().items()
    assert OF_HOURS.items() <= SPIN.items()
