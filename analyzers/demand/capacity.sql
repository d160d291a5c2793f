-- GPU-hours by hour, model and way of payment: allocated, free or stranded,
-- and their cost.
SELECT
    l.cluster,
    date_trunc('hour', l.bucket) AS hour,
    coalesce(l.model, '') AS model,
    coalesce(n.capacity_type, 'on-demand') AS capacity_type,
    sum(l.gpu_seconds) / 3600 AS gpu_hours,
    coalesce(sum(l.gpu_seconds) FILTER (WHERE l.state IN ('free', 'stranded')), 0) / 3600 AS free,
    coalesce(sum(l.gpu_seconds) FILTER (WHERE l.namespace <> ''), 0) / 3600 AS allocated,
    sum(l.usd) AS usd,
    coalesce(sum(l.gpu_seconds) FILTER (WHERE NOT l.priced), 0) / 3600 AS unpriced
FROM ledger AS l
LEFT JOIN node_eras AS n
    ON
        l.cluster = n.cluster AND l.node = n.node
        AND l.bucket >= n.holds_from AND l.bucket < n.holds_to
WHERE l.bucket >= $since AND l.bucket < $until
GROUP BY ALL
ORDER BY ALL
