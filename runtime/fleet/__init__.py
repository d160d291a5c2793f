"""An embedded synthetic fleet with known waste: deterministic by seed, no cluster, no GPU.

`workloads.csv` says who holds what on which node; `behaviour.py` says how each kind of workload
moves; `exposition.py` and `inventory.py` write down what its exporters and its API server would
answer; `truth.py` keeps what was planted. Nothing downstream reads the truth except to compare.
"""
