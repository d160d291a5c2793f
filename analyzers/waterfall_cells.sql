-- The bill in cells: GPU-hours by owner, state and place, in whole hours as in `fallow spend`.
SELECT
    cluster,
    namespace,
    workload_kind,
    workload,
    team,
    pool,
    node,
    model,
    state,
    round(fsum(gpu_seconds) * 1e6)::BIGINT AS gpu_us,
    coalesce(sum(usd) FILTER (WHERE priced) * 100000000, 0)::BIGINT AS usd_e8,
    priced
FROM ledger
WHERE
    bucket >= date_trunc('hour', $since::TIMESTAMP)
    AND bucket < $until::TIMESTAMP
    AND ($cluster::VARCHAR IS NULL OR cluster = $cluster)
GROUP BY ALL
HAVING round(fsum(gpu_seconds) * 1e6) > 0
ORDER BY ALL
