"""Decide what fits, what is admitted and what would have happened: nodes, quotas, queues."""
