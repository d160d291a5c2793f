-- Idle GPU-hours of each workload by hour.
SELECT
    cluster,
    namespace,
    workload_kind,
    workload,
    epoch_us(date_trunc('hour', bucket)) AS hour_us,
    sum(gpu_seconds) / 3600 AS gpu_hours
FROM ledger
WHERE bucket >= $since AND bucket < $until AND state = 'idle' AND namespace <> ''
GROUP BY ALL
ORDER BY ALL
