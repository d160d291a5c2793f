"""The scheduler: which pod next, on which node and device, and who must yield.

requests -> fleet (what is free) -> policies (which node) -> devices (which device) -> preempting.
Pure: no store, no clock, no chance. Equal choices go to the first node by name, the lowest index.
"""
