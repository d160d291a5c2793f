-- GPU-hours by hour, model and way of payment: allocated, free or stranded,
-- and their cost.
WITH paid AS (
    SELECT
        cluster,
        node,
        max(capacity_type) AS capacity_type
    FROM node
    GROUP BY ALL
)

SELECT
    l.cluster,
    date_trunc('hour', l.bucket) AS hour,
    coalesce(l.model, '') AS model,
    coalesce(p.capacity_type, 'on-demand') AS capacity_type,
    sum(l.gpu_seconds) / 3600 AS gpu_hours,
    coalesce(sum(l.gpu_seconds) FILTER (WHERE l.state IN ('free', 'stranded')), 0) / 3600 AS free,
    coalesce(sum(l.gpu_seconds) FILTER (WHERE l.namespace <> ''), 0) / 3600 AS allocated,
    sum(l.usd) AS usd,
    coalesce(sum(l.gpu_seconds) FILTER (WHERE NOT l.priced), 0) / 3600 AS unpriced
FROM ledger AS l
LEFT JOIN paid AS p ON l.cluster = p.cluster AND l.node = p.node
WHERE l.bucket >= date_trunc('hour', $since::TIMESTAMP) AND l.bucket < $until::TIMESTAMP
GROUP BY ALL
ORDER BY ALL
