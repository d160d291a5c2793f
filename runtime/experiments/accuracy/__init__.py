"""How right the idle verdicts are, and the peers': a simulated world is collected, then judged.

    world ─► blocks ─┬─► rows, with quirks ─► warehouse ─► verdicts (ours, gpu-pruner's, ...)
                     └─► truth ──────────────────────────────┴─► scores

The truth of the blocks never enters the warehouse.
"""
