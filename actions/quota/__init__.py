"""Move quota within a group from unused to waiting queues, and back if it did not help.

`solver.solve` computes how much each account may give and get. A system (Kueue, Volcano, ...)
defines how its objects are read and which writes change them. The executor puts both into one
intent. `waiting_time` tests afterwards whether the waiting time fell.
"""
