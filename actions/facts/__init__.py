"""Facts: all that stored rows say about a case at one moment, and nothing later.

findings ─► gathering.py ─► Facts          ground.py  who held what, pods, nodes, read once
                                           waiting.py who waits, and would these GPUs do
                                           fleet.py   what budgets in percent are shares of
"""

from actions.facts.case_facts import gather_facts
from actions.facts.fleet import read_fleet

__all__ = ["gather_facts", "read_fleet"]
