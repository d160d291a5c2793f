"""Node pools: what the observed pods would need, compared with what is paid for.

pod, node ──► demand (peak of what ran at once) ─┐
rate, instance_types.csv ──► offers ─────────────┼─► bound ≤ packing ≤ today ──► findings
ledger ──► bill ─────────────────────────────────┘
"""
