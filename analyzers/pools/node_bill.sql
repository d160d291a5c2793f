-- The cost of each pool's and node's GPUs in the window, the part that was not allocated, and the
-- hours that commitments paid.
SELECT
    l.cluster,
    l.pool,
    l.node,
    l.model,
    min(l.bucket) AS first_bucket,
    max(l.bucket) AS last_bucket,
    sum(l.gpu_seconds) / 3600 AS gpu_hours,
    coalesce(sum(l.gpu_seconds) FILTER (WHERE l.state IN ('free', 'stranded')), 0) / 3600
        AS free_hours,
    coalesce(sum(l.gpu_seconds) FILTER (WHERE NOT l.priced), 0) / 3600 AS unpriced_hours,
    coalesce(sum(l.gpu_seconds * s.committed), 0) / 3600 AS committed_hours,
    sum(l.usd) AS usd,
    sum(l.usd) FILTER (WHERE l.state IN ('free', 'stranded')) AS free_usd,
    max(l.price_as_of) AS as_of
FROM ledger AS l
LEFT JOIN node_shares AS s
    ON
        l.cluster = s.cluster AND l.node = s.node AND l.model IS NOT DISTINCT FROM s.model
        AND l.bucket >= s.from_at AND l.bucket < s.to_at
WHERE
    l.bucket >= date_trunc('hour', $since::TIMESTAMP)
    AND l.bucket < $until::TIMESTAMP
    AND l.node IS NOT null
GROUP BY ALL
ORDER BY ALL
