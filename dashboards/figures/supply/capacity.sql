-- GPU-hours and dollars by how the node is bought.
WITH bought AS (
    SELECT
        cluster,
        node,
        coalesce(arg_max(capacity_type, last_seen), '(unknown)') AS capacity
    FROM node
    GROUP BY ALL
)

SELECT
    coalesce(b.capacity, '(unknown)') AS capacity,
    count(DISTINCT p.node) AS nodes,
    sum(p.gpu_hours) AS gpu_hours,
    sum(p.usd) AS usd,
    sum(p.usd)::DOUBLE
    / nullif(sum(p.gpu_hours) FILTER (WHERE p.usd IS NOT null), 0) AS usd_per_gpu_hour,
    100 * coalesce(sum(p.gpu_hours) FILTER (WHERE p.state = 'productive'), 0)
    / sum(p.gpu_hours) AS productive_pct,
    sum(p.gpu_hours) FILTER (WHERE p.state = 'lost') AS lost_gpu_hours
FROM paid AS p
LEFT JOIN bought AS b ON p.cluster = b.cluster AND p.node = b.node
GROUP BY ALL
ORDER BY gpu_hours DESC, capacity ASC
