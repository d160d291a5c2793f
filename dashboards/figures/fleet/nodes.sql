-- A row per node, the highest idle cost first.
SELECT
    cluster,
    pool,
    node,
    any_value(model) AS model,
    sum(gpus) AS gpus,
    sum(idle_gpus) AS idle_gpus,
    coalesce(sum(gpus) FILTER (WHERE state = 'free'), 0) AS free_gpus,
    coalesce(sum(gpus) FILTER (WHERE state = 'unknown'), 0) AS unknown_gpus,
    sum(idle_usd_h)::DECIMAL(18, 4) AS idle_usd_h,
    sum(usd_h)::DECIMAL(18, 4) AS usd_h,
    arg_max(workload, idle_usd_h) FILTER (WHERE state = 'idle') AS workload
FROM newest_hour
GROUP BY cluster, pool, node
ORDER BY idle_usd_h DESC NULLS LAST, idle_gpus DESC, free_gpus DESC, node ASC
LIMIT $most
