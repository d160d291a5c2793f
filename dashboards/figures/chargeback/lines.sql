-- A team's allocations: a line per workload and kind of capacity, the most expensive first.
SELECT
    cluster,
    namespace,
    workload,
    pool,
    model,
    sum(gpu_hours) AS gpu_hours,
    coalesce(sum(gpu_hours) FILTER (WHERE state IN ('productive', 'low')), 0) AS used_gpu_hours,
    coalesce(sum(gpu_hours) FILTER (WHERE state = 'idle'), 0) AS idle_gpu_hours,
    sum(usd_gpu)::DECIMAL(18, 8) AS usd_gpu,
    (sum(usd_loaded) - sum(usd_gpu))::DECIMAL(18, 8) AS usd_node,
    sum(usd_loaded)::DECIMAL(18, 8) AS usd_loaded,
    sum(usd_loaded)::DOUBLE / nullif(sum(gpu_hours) FILTER (WHERE usd_loaded IS NOT null), 0)
        AS usd_per_gpu_hour,
    100 * coalesce(sum(busy_gpu_hours), 0) / nullif(sum(known_gpu_hours), 0) AS busy_pct,
    100 * sum(effective_gpu_hours) / nullif(sum(measured_gpu_hours), 0) AS effective_pct,
    max(price_as_of) AS price_as_of
FROM paid
GROUP BY ALL
ORDER BY usd_loaded DESC NULLS LAST, gpu_hours DESC, workload ASC, pool ASC, model ASC
