-- What each workload's GPU-hours cost in the window, by the state they were in.
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
