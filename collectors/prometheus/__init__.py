"""Read a Prometheus (or Thanos, Mimir, VictoriaMetrics, AMP): telemetry, inventory, pod usage.

client.py      one query at a time: budget, retries, errors in words
decode.py      answers straight into NumPy arrays
queries.csv    what is asked for beside device telemetry
telemetry.py   device series of one chunk of time -> sample, holding, gaps
kube_state.py  kube-state-metrics -> node, pod
pod_identity.py  the uid of each pod series: a name is used again, a uid is not
grid.py        rates by pod over whole stretches of the clock's grid
usage.py       cAdvisor and request counters -> pod_sample
containers.py  cAdvisor by container -> container_sample
latencies.py   latency histograms (service_metrics.csv) -> latency_sample
steps.py       training loops (step_metrics.csv) -> step_sample
progress.py    how far jobs are (../progress_metrics.csv) -> progress_sample
cursors.py     what is done, and what is left to do
collector.py   the collector
"""
