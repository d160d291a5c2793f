-- GPU-hours of each node that were not allocated, and what they cost.
SELECT
    cluster,
    node,
    sum(gpu_seconds) / 3600 AS gpu_hours,
    sum(usd) FILTER (WHERE priced) AS usd,
    bool_and(priced) AS priced
FROM ledger
WHERE
    bucket >= date_trunc('hour', $since::TIMESTAMP)
    AND bucket < $until::TIMESTAMP
    AND state IN ('free', 'stranded')
    AND node IS NOT null
GROUP BY cluster, node
ORDER BY cluster, node
