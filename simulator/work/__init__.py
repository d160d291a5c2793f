"""What the pods of the simulated fleet do: behaviours, their laws, signals and the truth.

A `Plan` (behaviour, seed, parameters) becomes a `Script`: phases over time, whose lengths and
levels follow the laws in this folder's tables. `signals` turns the scripts of all pods into what
every device's sensors show, and what is true of it, at every tick.
"""
