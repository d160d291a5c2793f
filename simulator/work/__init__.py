"""Simulate what pods do: behaviours, their distributions, signals and the truth.

A `WorkPlan` (behaviour, seed, parameters) becomes a `Script`: phases over time, whose lengths and
levels follow the distributions in this folder's tables. `signals` turns the scripts of all pods
into the sensor values and the true state of every device at every tick.
"""
