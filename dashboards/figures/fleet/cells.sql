-- A row per GPU, or, with more than `most` GPUs, per node and state. If even those are too many,
-- the nodes with the highest idle cost come first.
WITH few AS (
    SELECT count(*) <= $most AS is_few FROM newest_hour
),

merged AS (
    SELECT
        t.cluster,
        t.pool,
        t.node,
        CASE WHEN few.is_few THEN t.device END AS device,
        t.state,
        any_value(t.model) AS model,
        count(*) AS devices,
        sum(t.gpus) AS gpus,
        sum(t.usd_h) AS usd_h,
        sum(t.idle_usd_h) AS idle_usd_h,
        CASE WHEN count(DISTINCT t.workload) = 1 THEN any_value(t.workload) END AS workload,
        count(DISTINCT t.workload) FILTER (WHERE t.workload <> '(platform)') AS workloads
    FROM newest_hour AS t
    CROSS JOIN few
    GROUP BY t.cluster, t.pool, t.node, CASE WHEN few.is_few THEN t.device END, t.state
),

ranked AS (
    SELECT
        *,
        sum(coalesce(idle_usd_h, 0)) OVER (PARTITION BY cluster, node) AS node_idle,
        sum(gpus) OVER (PARTITION BY cluster, node) AS node_gpus
    FROM merged
)

SELECT
    * EXCLUDE (node_idle),
    row_number() OVER (ORDER BY node_idle DESC, cluster ASC, node ASC, state ASC, device ASC)
        AS place
FROM ranked
QUALIFY place <= $most
ORDER BY cluster ASC, pool ASC, node ASC, state ASC, device ASC
