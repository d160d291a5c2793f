-- Each hour of the week: its cost and use, over all weeks together.
SELECT
    weekday,
    hour,
    count(DISTINCT date_trunc('day', local_time))::INTEGER AS days,
    sum(gpu_hours) AS gpu_hours,
    sum(usd) AS usd,
    coalesce(sum(gpu_hours) FILTER (WHERE state = 'productive'), 0) AS productive_gpu_hours,
    coalesce(sum(gpu_hours) FILTER (WHERE state = 'idle'), 0) AS idle_gpu_hours,
    coalesce(sum(gpu_hours) FILTER (WHERE state IN ('free', 'stranded')), 0) AS free_gpu_hours,
    coalesce(sum(gpu_hours) FILTER (WHERE state = 'unknown'), 0) AS unknown_gpu_hours,
    coalesce(sum(usd) FILTER (WHERE state = 'idle'), sum(usd) * 0) AS idle_usd,
    100 * productive_gpu_hours / nullif(sum(gpu_hours), 0) AS productive_pct,
    100 * idle_gpu_hours / nullif(sum(gpu_hours), 0) AS idle_pct,
    100 * free_gpu_hours / nullif(sum(gpu_hours), 0) AS free_pct,
    100 * unknown_gpu_hours / nullif(sum(gpu_hours), 0) AS unknown_pct
FROM local_hours
GROUP BY ALL
ORDER BY weekday ASC, hour ASC
