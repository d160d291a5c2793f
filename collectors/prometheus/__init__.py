"""Read a Prometheus (or Thanos, Mimir, VictoriaMetrics, AMP): telemetry, inventory, pod usage.

client.py      sends one query at a time: budget, retries, errors as sentences
decode.py      decodes answers into NumPy arrays
remote_read.py  reads raw samples as the server's own chunks: remote_fields.py
streamed_chunks.py  finds the chunks in an answer, xor_chunks.py decodes them
queries.csv    queries besides device telemetry
telemetry.py   device series of one chunk of time -> sample, holding, gaps
kube_state.py  kube-state-metrics -> node, pod
pod_identity.py  the uid of each pod series: names are used again, uids are not
grid.py        rates by pod over whole stretches of the clock's grid
usage.py       cAdvisor and model servers (serving_load.csv) -> pod_sample
containers.py  cAdvisor by container -> container_sample
latencies.py   latency histograms (service_metrics.csv) -> latency_sample
steps.py       training loops (step_metrics.csv) -> step_sample
progress.py    progress of jobs (../progress_metrics.csv) -> progress_sample
cursors.py     what is stored already, and what is left to read
collector.py   the collector
"""
