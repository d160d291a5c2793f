-- Waste by owner and state. Low use is not waste here; unknown time is never waste. Rows are summed
-- by name and state first: sums with conditions over every row cost more.
-- The identity of a workload, a namespace and a pool includes its cluster.
WITH keyed AS (
    SELECT
        CASE $by
            WHEN 'team' THEN team
            WHEN 'namespace' THEN namespace
            WHEN 'workload' THEN workload
            WHEN 'model' THEN model
            WHEN 'pool' THEN pool
            WHEN 'cluster' THEN cluster
        END AS name,
        CASE WHEN $by IN ('workload', 'namespace', 'pool') THEN cluster END AS cluster,
        state,
        state IN ('idle', 'lost', 'free', 'stranded', 'unavailable') AS wasted,
        sum(gpu_hours) AS gpu_hours,
        sum(usd) AS usd,
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
    coalesce(sum(gpu_hours) FILTER (WHERE wasted), 0) AS waste_gpu_hours,
    coalesce(sum(usd) FILTER (WHERE wasted), sum(usd) * 0) AS waste_usd,
    coalesce(sum(usd) FILTER (WHERE state = 'idle'), sum(usd) * 0) AS idle_usd,
    coalesce(sum(usd) FILTER (WHERE state = 'lost'), sum(usd) * 0) AS lost_usd,
    coalesce(sum(usd) FILTER (WHERE state = 'free'), sum(usd) * 0) AS free_usd,
    coalesce(sum(usd) FILTER (WHERE state = 'stranded'), sum(usd) * 0) AS stranded_usd,
    coalesce(sum(usd) FILTER (WHERE state = 'unavailable'), sum(usd) * 0) AS unavailable_usd,
    coalesce(sum(usd) FILTER (WHERE state = 'unknown'), sum(usd) * 0) AS unknown_usd,
    sum(gpu_hours) AS gpu_hours,
    sum(usd) AS usd,
    100 * coalesce(sum(busy_gpu_hours), 0) / nullif(sum(known_gpu_hours), 0) AS busy_pct,
    100 * sum(effective_gpu_hours) / nullif(sum(measured_gpu_hours), 0) AS effective_pct,
    100 * coalesce(sum(usd) FILTER (WHERE wasted), 0)::DOUBLE
    / nullif(sum(usd)::DOUBLE, 0) AS waste_usd_pct,
    100 * coalesce(sum(gpu_hours) FILTER (WHERE wasted), 0)
    / nullif(sum(gpu_hours), 0) AS waste_pct
FROM keyed
GROUP BY name, cluster
ORDER BY waste_usd DESC NULLS LAST, waste_gpu_hours DESC, name ASC, cluster ASC
