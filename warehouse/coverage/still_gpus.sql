-- Whole GPUs that are idle by their readings in the newest day of the window, with what
-- frozen.is_still asks: the readings of power, and what changed of frozen.SIGNS.
-- Where finer neighbours or other GPUs of the model showed that the power is frozen
-- (signals/frozen_power.sql), it is: those are not among them.
WITH gpu AS (
    SELECT
        r.cluster,
        r.device,
        any_value(d.node) AS node,
        any_value(coalesce(d.gpu_model, d.model)) AS model,
        max(r.bucket) AS newest,
        sum(r.idle_s) / 3600 AS idle_h,
        sum(r.power_w_n)::BIGINT AS readings,
        (min(r.power_w_min) < max(r.power_w_max))::BIGINT
        + coalesce(max(r.energy_mj) > 0, FALSE)::BIGINT
        + (count(DISTINCT r.pcie_bps_max) > 1)::BIGINT
        + (count(DISTINCT r.nvlink_bps_max) > 1)::BIGINT
        + (count(DISTINCT r.last_kernel_age_s_min) > 1)::BIGINT AS changes
    FROM rollup_1h AS r
    INNER JOIN device AS d ON r.cluster = d.cluster AND r.device = d.device
    WHERE
        r.bucket >= greatest($since, $until::TIMESTAMP - INTERVAL 24 HOUR) AND r.bucket < $until
        AND d.parent IS NULL AND r.power_w_n > 0 AND ($cluster IS NULL OR r.cluster = $cluster)
        -- An hour at work says nothing of an idle GPU's sensor.
        AND r.idle_s > 0 AND r.low_s + r.busy_s <= 0
    GROUP BY r.cluster, r.device
)

SELECT
    g.cluster,
    g.node,
    g.device,
    g.model,
    g.idle_h,
    g.readings,
    g.changes
FROM gpu AS g
WHERE
    NOT EXISTS (
        SELECT 1
        FROM signal AS s
        WHERE
            g.cluster = s.cluster AND g.device = s.device AND s.rule = 'frozen'
            AND s.bucket >= g.newest AND s.bucket < g.newest + INTERVAL 1 HOUR
    )
ORDER BY g.cluster, g.node, g.device
