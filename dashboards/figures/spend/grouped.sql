-- One row per name, the most expensive first. Rows are summed by name and state first: sums with
-- conditions over every row cost more.
-- The identity of a workload, a namespace and a pool includes its cluster.
WITH keyed AS (
    SELECT
        CASE $by
            WHEN 'cluster' THEN cluster
            WHEN 'team' THEN team
            WHEN 'namespace' THEN namespace
            WHEN 'workload' THEN workload
            WHEN 'model' THEN model
            WHEN 'pool' THEN pool
            WHEN 'state' THEN state
        END AS name,
        CASE WHEN $by IN ('workload', 'namespace', 'pool') THEN cluster END AS cluster,
        state,
        sum(gpu_hours) AS gpu_hours,
        sum(usd) AS usd,
        sum(gpu_hours) FILTER (WHERE usd IS null) AS unpriced_gpu_hours,
        sum(known_gpu_hours) AS known_gpu_hours,
        sum(busy_gpu_hours) AS busy_gpu_hours,
        sum(measured_gpu_hours) AS measured_gpu_hours,
        sum(effective_gpu_hours) AS effective_gpu_hours
    FROM paid
    GROUP BY ALL
)

SELECT
    name,
    cluster,
    sum(gpu_hours) AS gpu_hours,
    sum(usd) AS usd,
    coalesce(sum(gpu_hours) FILTER (WHERE state = 'idle'), 0) AS idle_gpu_hours,
    coalesce(sum(usd) FILTER (WHERE state = 'idle'), sum(usd) * 0) AS idle_usd,
    coalesce(sum(gpu_hours) FILTER (WHERE state = 'unknown'), 0) AS unknown_gpu_hours,
    coalesce(sum(unpriced_gpu_hours), 0) AS unpriced_gpu_hours,
    100 * coalesce(sum(busy_gpu_hours), 0) / nullif(sum(known_gpu_hours), 0) AS busy_pct,
    100 * sum(effective_gpu_hours) / nullif(sum(measured_gpu_hours), 0) AS effective_pct,
    100 * sum(gpu_hours) / nullif(sum(sum(gpu_hours)) OVER (), 0) AS share_pct
FROM keyed
GROUP BY name, cluster
ORDER BY usd DESC NULLS LAST, gpu_hours DESC, name ASC, cluster ASC
