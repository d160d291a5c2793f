-- A team's allocations: a row per workload over all pools and models, the most expensive first.
SELECT
    cluster,
    namespace,
    workload,
    string_agg(DISTINCT model, ', ' ORDER BY model) AS model,
    sum(gpu_hours) AS gpu_hours,
    coalesce(sum(gpu_hours) FILTER (WHERE state IN ('productive', 'low')), 0) AS used_gpu_hours,
    coalesce(sum(gpu_hours) FILTER (WHERE state = 'idle'), 0) AS idle_gpu_hours,
    sum(usd_gpu)::DECIMAL(18, 8) AS usd_gpu,
    sum(usd_loaded)::DECIMAL(18, 8) AS usd_loaded,
    sum(usd_loaded)::DOUBLE / nullif(sum(gpu_hours) FILTER (WHERE usd_loaded IS NOT null), 0)
        AS usd_per_gpu_hour,
    100 * coalesce(sum(busy_gpu_hours), 0) / nullif(sum(known_gpu_hours), 0) AS busy_pct,
    100 * sum(effective_gpu_hours) / nullif(sum(measured_gpu_hours), 0) AS effective_pct
FROM paid
GROUP BY cluster, namespace, workload
-- Sums of floating point differ in their last digits from run to run: equal hours keep one order.
ORDER BY usd_loaded DESC NULLS LAST, round(sum(gpu_hours), 6) DESC, workload ASC, cluster ASC
