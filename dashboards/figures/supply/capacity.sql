-- GPU-hours and dollars by how the node was bought in each hour.
SELECT
    coalesce(n.capacity_type, '(unknown)') AS capacity,
    count(DISTINCT p.node) AS nodes,
    sum(p.gpu_hours) AS gpu_hours,
    sum(p.usd) AS usd,
    sum(p.usd)::DOUBLE
    / nullif(sum(p.gpu_hours) FILTER (WHERE p.usd IS NOT null), 0) AS usd_per_gpu_hour,
    100 * coalesce(sum(p.gpu_hours) FILTER (WHERE p.state = 'productive'), 0)
    / sum(p.gpu_hours) AS productive_pct,
    sum(p.gpu_hours) FILTER (WHERE p.state = 'lost') AS lost_gpu_hours
FROM paid AS p
LEFT JOIN node_eras AS n
    ON
        p.cluster = n.cluster AND p.node = n.node
        AND p.bucket >= n.holds_from AND p.bucket < n.holds_to
GROUP BY ALL
ORDER BY gpu_hours DESC, capacity ASC
