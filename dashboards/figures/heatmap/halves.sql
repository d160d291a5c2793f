-- Office hours (Monday to Friday) and the rest of the week.
SELECT
    in_office,
    count(DISTINCT local_time)::INTEGER AS hours,
    sum(gpu_hours) AS gpu_hours,
    sum(usd) AS usd,
    coalesce(sum(gpu_hours) FILTER (WHERE state = 'productive'), 0) AS productive_gpu_hours,
    coalesce(sum(gpu_hours) FILTER (WHERE state = 'idle'), 0) AS idle_gpu_hours,
    coalesce(sum(usd) FILTER (WHERE state = 'idle'), sum(usd) * 0) AS idle_usd
FROM local_hours
GROUP BY in_office
ORDER BY in_office DESC
