-- The cost of each pool's and node's GPUs in the window, and the part that was not allocated.
SELECT
    cluster,
    pool,
    node,
    model,
    min(bucket) AS first_bucket,
    max(bucket) AS last_bucket,
    sum(gpu_seconds) / 3600 AS gpu_hours,
    coalesce(sum(gpu_seconds) FILTER (WHERE state IN ('free', 'stranded')), 0) / 3600 AS free_hours,
    coalesce(sum(gpu_seconds) FILTER (WHERE NOT priced), 0) / 3600 AS unpriced_hours,
    sum(usd) AS usd,
    sum(usd) FILTER (WHERE state IN ('free', 'stranded')) AS free_usd,
    max(price_as_of) AS as_of
FROM ledger
WHERE
    bucket >= date_trunc('hour', $since::TIMESTAMP)
    AND bucket < $until::TIMESTAMP
    AND node IS NOT null
GROUP BY ALL
ORDER BY ALL
