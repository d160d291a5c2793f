-- The cost of each workload's GPU-hours in the window, by their state.
SELECT
    cluster,
    namespace,
    workload_kind,
    workload,
    state,
    sum(gpu_seconds) / 3600 AS gpu_hours,
    sum(usd) FILTER (WHERE priced) AS usd,
    bool_and(priced) AS priced
FROM ledger
WHERE
    bucket >= date_trunc('hour', $since::TIMESTAMP)
    AND bucket < $until::TIMESTAMP
    AND workload <> ''
    AND state IN ('idle', 'low', 'productive', 'lost')
GROUP BY ALL
HAVING sum(gpu_seconds) > 0
ORDER BY ALL
