-- What the ledger charged the workload for the hours that the finding touches.
SELECT
    state,
    model,
    round(sum(gpu_seconds) / 3600.0, 3) AS gpu_hours,
    sum(usd) AS usd,
    sum(usd) / nullif(sum(gpu_seconds), 0) * 3600 AS usd_per_gpu_hour,
    max(price_as_of) AS price_as_of
FROM ledger
WHERE
    cluster = $cluster
    AND namespace = $namespace
    AND workload_kind = $workload_kind
    AND workload = $workload
    AND bucket >= date_trunc('hour', $since::TIMESTAMP)
    AND bucket < $until::TIMESTAMP
GROUP BY state, model
ORDER BY state, model
