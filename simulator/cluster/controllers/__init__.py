"""Simulate the cluster's own controllers: for each kind, which child objects should exist.

A controller is a function of an object and its children; it returns `ChildChanges`. `loop.py`
carries these out, repeatedly until nothing changes.
"""
