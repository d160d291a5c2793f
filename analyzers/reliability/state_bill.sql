-- Hours and their price: allocated to workloads, by state, and of nodes that were not available.
SELECT
    cluster,
    namespace,
    workload_kind,
    workload,
    CASE WHEN state = 'unavailable' THEN node END AS node,
    CASE WHEN state = 'unavailable' THEN pool END AS pool,
    state,
    sum(gpu_seconds) / 3600 AS gpu_hours,
    CASE WHEN bool_and(priced) THEN sum(usd) END AS usd
FROM ledger
WHERE
    bucket >= $since
    AND bucket < $until
    AND state IN ('unavailable', 'startup', 'productive', 'low', 'lost')
    AND (namespace <> '' OR state = 'unavailable')
GROUP BY ALL
ORDER BY ALL
