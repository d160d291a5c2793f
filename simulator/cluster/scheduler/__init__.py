"""Schedule pods: which pod next, on which node and device, and which pods must yield.

requests -> fleet (what is free) -> policies (which node) -> devices (which device) -> preempting.
Pure: no store, no clock, no randomness. Ties go to the first node by name and the lowest index.
"""
