-- Workloads with idle GPUs in the newest hour, the most expensive first; they sum to all idle GPUs.
SELECT
    p.cluster,
    p.team,
    p.workload,
    any_value(p.model) AS model,
    sum(p.gpu_hours) / any_value(span.hours) AS idle_gpus,
    (sum(p.usd) / any_value(span.hours))::DECIMAL(18, 4) AS idle_usd_h,
    count(DISTINCT p.node) AS nodes
FROM paid AS p
CROSS JOIN span
WHERE p.state = 'idle'
GROUP BY p.cluster, p.team, p.workload
ORDER BY idle_usd_h DESC NULLS LAST, idle_gpus DESC, p.workload ASC
LIMIT $most
