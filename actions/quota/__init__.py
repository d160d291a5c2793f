"""Quota moves from who leaves it unused to who waits, within a group, and back if it was no help.

`solving.solve` says how much each may give and get; a system (Kueue, Volcano, ...) says how its
objects are read and which writes change them; the executor puts both into one intent. `waiting`
judges afterwards whether the waiting fell.
"""
