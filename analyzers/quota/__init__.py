"""Quotas: nominal quota, allocation, use and waiting demand of each queue, hour by hour.

quota ─► entitled, used, waiting ─┐
pod ───► allocated, waiting ──────┼─► groups that could share ─► starved, hoarded, stranded, ghosts
ledger ► idle, free, dollars ─────┘                          └─► back-tested rebalance
"""
