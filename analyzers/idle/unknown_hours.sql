-- GPU-hours allocated to workloads while telemetry was missing or contradicted itself.
SELECT
    cluster,
    namespace,
    workload_kind,
    workload,
    sum(gpu_seconds) / 3600 AS gpu_hours
FROM ledger
WHERE state = 'unknown' AND workload <> '' AND bucket >= $since AND bucket < $until
GROUP BY cluster, namespace, workload_kind, workload
HAVING sum(gpu_seconds) > 0
ORDER BY gpu_hours DESC, cluster ASC, namespace ASC, workload_kind ASC, workload ASC
