-- Which workload had which device, from when to when: a row per pair, the most GPU-hours first.
SELECT
    cluster,
    workload,
    any_value(team) AS team,
    node,
    device,
    any_value(model) AS model,
    min(bucket) AS first_hour,
    max(bucket) + INTERVAL 1 HOUR AS last_hour,
    sum(gpu_hours) AS gpu_hours,
    coalesce(sum(gpu_hours) FILTER (WHERE state = 'idle'), 0) AS idle_gpu_hours,
    sum(usd) AS usd,
    coalesce(sum(usd) FILTER (WHERE state = 'idle'), sum(usd) * 0) AS idle_usd
FROM subject
GROUP BY cluster, workload, node, device
ORDER BY workload = '(platform)', gpu_hours DESC, node ASC, device ASC
LIMIT $most
