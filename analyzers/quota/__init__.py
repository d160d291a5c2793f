"""Quotas: who is entitled to what, has it, uses it and waits for it, hour by hour.

quota ─► entitled, used, waiting ─┐
pod ───► allocated, waiting ──────┼─► groups that could share ─► starved, hoarded, stranded, ghosts
ledger ► idle, free, dollars ─────┘                          └─► back-tested rebalance
"""
