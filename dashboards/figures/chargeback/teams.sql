-- A line per team, the most expensive first; the platform last.
SELECT
    team,
    sum(gpu_hours) AS gpu_hours,
    sum(used_gpu_hours) AS used_gpu_hours,
    sum(idle_gpu_hours) AS idle_gpu_hours,
    sum(unpriced_gpu_hours) AS unpriced_gpu_hours,
    100 * coalesce(sum(busy_gpu_hours), 0) / nullif(sum(known_gpu_hours), 0) AS busy_pct,
    100 * sum(effective_gpu_hours) / nullif(sum(measured_gpu_hours), 0) AS effective_pct,
    sum(usd_gpu)::DECIMAL(18, 8) AS usd_gpu,
    (sum(usd_loaded) - sum(usd_gpu))::DECIMAL(18, 8) AS usd_node,
    sum(usd_loaded)::DECIMAL(18, 8) AS usd_loaded,
    sum(idle_usd)::DECIMAL(18, 8) AS idle_usd,
    sum(shared_usd)::DECIMAL(18, 8) AS shared_usd,
    (sum(usd_loaded) + sum(shared_usd))::DECIMAL(18, 8) AS total_usd,
    (sum(usd_gpu) + sum(shared_usd_gpu))::DECIMAL(18, 8) AS total_usd_gpu
FROM shares
GROUP BY team
ORDER BY bool_or(owned) DESC, total_usd DESC NULLS LAST, gpu_hours DESC, team ASC
