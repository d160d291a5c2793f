-- Each pool's GPUs, dollars and states in the window, beside the minimum that its demand needs.
WITH used AS (
    SELECT
        cluster,
        pool,
        sum(gpu_hours) AS gpu_hours,
        sum(usd) AS usd,
        count(DISTINCT bucket) AS hours,
        100 * coalesce(sum(gpu_hours) FILTER (WHERE state = 'productive'), 0)
        / sum(gpu_hours) AS productive_pct,
        100 * coalesce(sum(gpu_hours) FILTER (WHERE state = 'idle'), 0)
        / sum(gpu_hours) AS idle_pct,
        100 * coalesce(sum(gpu_hours) FILTER (WHERE state IN ('free', 'stranded')), 0)
        / sum(gpu_hours) AS free_pct
    FROM paid
    GROUP BY ALL
),

sized AS (
    SELECT
        cluster,
        workload AS pool,
        arg_max(document, found_at) AS document
    FROM finding
    WHERE analyzer = 'pools' AND (document -> '$.details.bound') IS NOT null
    GROUP BY ALL
)

SELECT
    u.cluster,
    u.pool,
    u.gpu_hours / u.hours AS gpus,
    u.gpu_hours,
    u.usd,
    (u.usd::DOUBLE / u.hours)::DECIMAL(18, 6) AS usd_h,
    u.productive_pct,
    u.idle_pct,
    u.free_pct,
    (s.document ->> '$.details.today.nodes')::INTEGER AS today_nodes,
    (s.document ->> '$.details.packed.nodes')::INTEGER AS packed_nodes,
    (s.document ->> '$.details.same_type.nodes_bound')::INTEGER AS bound_nodes,
    (s.document ->> '$.details.today.usd_per_hour')::DECIMAL(18, 6) AS today_usd_h,
    (s.document ->> '$.details.packed.usd_per_hour')::DECIMAL(18, 6) AS packed_usd_h,
    (s.document ->> '$.details.bound.usd_per_hour')::DECIMAL(18, 6) AS bound_usd_h,
    100 * (s.document ->> '$.details.bound.gap')::DOUBLE AS gap_pct
FROM used AS u
LEFT JOIN sized AS s ON u.cluster = s.cluster AND u.pool = s.pool
ORDER BY u.usd DESC NULLS LAST, u.pool ASC
LIMIT $most
