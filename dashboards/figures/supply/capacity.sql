-- GPU-hours and dollars by how they were bought: what commitments paid of each hour, as the ledger
-- was charged, and the rest by what the node's label was.
WITH parts AS (
    SELECT
        p.*,
        coalesce(s.committed, 0) AS committed,
        coalesce(s.committed_usd, 0) AS committed_usd,
        CASE
            WHEN n.capacity_type = 'reserved' THEN 'reserved, no commitment known'
            ELSE coalesce(n.capacity_type, '(unknown)')
        END AS label
    FROM paid AS p
    LEFT JOIN node_eras AS n
        ON
            p.cluster = n.cluster AND p.node = n.node
            AND p.bucket >= n.holds_from AND p.bucket < n.holds_to
    LEFT JOIN node_shares AS s
        ON
            p.cluster = s.cluster AND p.node = s.node
            AND p.model = coalesce(s.model, '(unknown)')
            AND p.bucket >= s.from_at AND p.bucket < s.to_at
),

bought AS (
    SELECT
        'committed' AS capacity,
        node,
        state,
        gpu_hours * committed AS gpu_hours,
        usd::DOUBLE * committed_usd AS usd
    FROM parts
    WHERE committed > 0
    UNION ALL BY NAME
    SELECT
        label AS capacity,
        node,
        state,
        gpu_hours * (1 - committed) AS gpu_hours,
        usd::DOUBLE * (1 - committed_usd) AS usd
    FROM parts
    WHERE committed < 1
)

SELECT
    capacity,
    count(DISTINCT node) AS nodes,
    sum(gpu_hours) AS gpu_hours,
    sum(usd)::DECIMAL(18, 8) AS usd,
    sum(usd) / nullif(sum(gpu_hours) FILTER (WHERE usd IS NOT null), 0) AS usd_per_gpu_hour,
    100 * coalesce(sum(gpu_hours) FILTER (WHERE state = 'productive'), 0)
    / sum(gpu_hours) AS productive_pct,
    sum(gpu_hours) FILTER (WHERE state = 'lost') AS lost_gpu_hours
FROM bought
GROUP BY capacity
ORDER BY gpu_hours DESC, capacity ASC
