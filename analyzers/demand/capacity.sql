-- GPU-hours by hour, model and way of payment: allocated, free or stranded, and their cost.
-- `committed` is what commitments paid of an hour of nodes that are not labelled reserved; the rest
-- is paid as its node was held.
WITH parts AS (
    SELECT
        l.cluster,
        date_trunc('hour', l.bucket) AS hour,
        coalesce(l.model, '') AS model,
        coalesce(n.capacity_type, 'on-demand') AS label,
        l.state,
        l.namespace,
        l.priced,
        l.gpu_seconds / 3600 AS gpu_hours,
        l.usd,
        coalesce(s.committed, 0) AS committed,
        coalesce(s.committed_usd, 0) AS committed_usd
    FROM ledger AS l
    LEFT JOIN node_eras AS n
        ON
            l.cluster = n.cluster AND l.node = n.node
            AND l.bucket >= n.holds_from AND l.bucket < n.holds_to
    LEFT JOIN node_shares AS s
        ON
            l.cluster = s.cluster AND l.node = s.node AND l.model IS NOT DISTINCT FROM s.model
            AND l.bucket >= s.from_at AND l.bucket < s.to_at
    WHERE l.bucket >= $since AND l.bucket < $until
),

bought AS (
    SELECT
        * REPLACE (gpu_hours * committed AS gpu_hours, usd * committed_usd AS usd),
        CASE WHEN label = 'reserved' THEN label ELSE 'committed' END AS capacity_type
    FROM parts
    WHERE committed > 0
    UNION ALL BY NAME
    SELECT
        * REPLACE (gpu_hours * (1 - committed) AS gpu_hours, usd * (1 - committed_usd) AS usd),
        label AS capacity_type
    FROM parts
    WHERE committed < 1
)

SELECT
    cluster,
    hour,
    model,
    capacity_type,
    sum(gpu_hours) AS gpu_hours,
    coalesce(sum(gpu_hours) FILTER (WHERE state IN ('free', 'stranded')), 0) AS free,
    coalesce(sum(gpu_hours) FILTER (WHERE namespace <> ''), 0) AS allocated,
    sum(usd) AS usd,
    coalesce(sum(gpu_hours) FILTER (WHERE NOT priced), 0) AS unpriced
FROM bought
GROUP BY ALL
ORDER BY ALL
