-- Teams with idle GPUs outside office hours, the most expensive first.
SELECT
    team,
    sum(usd) FILTER (WHERE NOT in_office) AS idle_usd,
    coalesce(sum(gpu_hours) FILTER (WHERE NOT in_office), 0) AS idle_gpu_hours,
    coalesce(sum(gpu_hours) FILTER (WHERE in_office), 0) AS office_idle_gpu_hours,
    100 * idle_gpu_hours / sum(gpu_hours) AS outside_pct
FROM local_hours
WHERE state = 'idle'
GROUP BY team
HAVING idle_gpu_hours > 0
ORDER BY idle_usd DESC NULLS LAST, idle_gpu_hours DESC, team ASC
LIMIT $most
