"""What a spin is stands in one table, which ledger, sizing and stalled jobs read."""

from analyzers import limits
from analyzers.stalled.limits import read_limits
from analyzers.work import SPIN as OF_HOURS
from warehouse.signals import SPIN


def test_no_limit_of_a_spin_stands_twice() -> None:
    assert not limits.read_limits("stalled").keys() & SPIN.keys()
    assert SPIN.items() <= read_limits().items()
    assert OF_HOURS.items() <= SPIN.items()
