"""Measure the accuracy of idle verdicts, Fallow's and other tools', in a simulated world.

    world ─► blocks ─┬─► rows, with quirks ─► warehouse ─► verdicts (ours, gpu-pruner's, ...)
                     └─► truth ──────────────────────────────┴─► scores

The truth of the blocks never enters the warehouse.
"""
