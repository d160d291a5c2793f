-- One row per name, the most expensive first.
SELECT
    cluster,
    namespace,
    team,
    workload,
    model,
    pool,
    node,
    state,
    sum(gpu_hours) AS gpu_hours,
    sum(usd)::DECIMAL(18, 8) AS usd,
    sum(own_usd)::DECIMAL(18, 8) AS own_usd,
    sum(idle_gpu_hours) AS idle_gpu_hours,
    sum(idle_usd)::DECIMAL(18, 8) AS idle_usd,
    sum(unknown_gpu_hours) AS unknown_gpu_hours,
    sum(unpriced_gpu_hours) AS unpriced_gpu_hours,
    sum(estimated_gpu_hours) AS estimated_gpu_hours,
    sum(estimated_usd)::DECIMAL(18, 8) AS estimated_usd,
    sum(known_gpu_hours) AS known_gpu_hours,
    sum(busy_gpu_hours) AS busy_gpu_hours,
    sum(effective_gpu_hours) AS effective_gpu_hours,
    sum(measured_gpu_hours) AS measured_gpu_hours,
    100 * sum(gpu_hours) / nullif(sum(sum(gpu_hours)) OVER (), 0) AS share_pct,
    max(price_as_of) AS price_as_of
FROM shared_out
WHERE $team::VARCHAR IS null OR team = $team
GROUP BY cluster, namespace, team, workload, model, pool, node, state
ORDER BY
    usd DESC NULLS LAST,
    gpu_hours DESC,
    cluster ASC,
    namespace ASC,
    team ASC,
    workload ASC,
    model ASC,
    pool ASC,
    node ASC,
    state ASC
