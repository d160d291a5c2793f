"""Serve the exporters: a fleet's telemetry, true or distorted by quirks.

Block -> shown.py (quirks.py) -> dcgm.py   the text of one node's exporter
                              -> rows.py   the rows that reading the texts would give
objects -> kube_state.py      HostLooks -> cadvisor.py, jupyter.py, inference.py
all of it over HTTP -> server.py
"""
