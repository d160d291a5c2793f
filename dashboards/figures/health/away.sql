-- Unavailable and lost time by node, the most expensive first.
SELECT
    cluster,
    pool,
    node,
    coalesce(sum(gpu_hours) FILTER (WHERE state = 'unavailable'), 0) AS unavailable_gpu_hours,
    coalesce(sum(usd) FILTER (WHERE state = 'unavailable'), sum(usd) * 0) AS unavailable_usd,
    coalesce(sum(gpu_hours) FILTER (WHERE state = 'lost'), 0) AS lost_gpu_hours,
    coalesce(sum(usd) FILTER (WHERE state = 'lost'), sum(usd) * 0) AS lost_usd,
    sum(gpu_hours) AS gpu_hours
FROM paid
WHERE state IN ('unavailable', 'lost')
GROUP BY ALL
ORDER BY unavailable_usd + lost_usd DESC NULLS LAST, gpu_hours DESC, node ASC
