"""Node pools: what the pods really seen would need, against what is paid for.

pod, node ──► demand (peak of what ran at once) ─┐
rate, instance_types.csv ──► offers ─────────────┼─► bound ≤ packing ≤ today ──► findings
ledger ──► bill ─────────────────────────────────┘
"""
