"""Read a Prometheus (or Thanos, Mimir, VictoriaMetrics, AMP): telemetry, inventory, pod usage.

client.py      one query at a time: budget, retries, errors in words
decode.py      answers straight into NumPy arrays
queries.csv    what is asked for beside device telemetry
telemetry.py   device series of one chunk of time -> sample, holding, gaps
kube_state.py  kube-state-metrics -> node, pod
usage.py       cAdvisor and request counters -> pod_sample
cursors.py     what is done, and what is left to do
collector.py   the collector
"""
