"""Facts: all that stored rows contain about a case at one time, from earlier rows only.

findings ─► case_facts.py ─► Facts    fleet_state.py    allocations, pods and nodes, read once
                                      pending_queue.py  who waits, and would these GPUs fit
                                      fleet.py          the base of budgets in percent
"""

from actions.facts.case_facts import gather_facts
from actions.facts.fleet import read_fleet

__all__ = ["gather_facts", "read_fleet"]
