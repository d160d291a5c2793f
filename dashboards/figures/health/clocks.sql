-- How fast devices ran while busy, beside the median of their model, and what slowed them. Bits of
-- NVML's clock event reasons: 8 hardware slowdown, 32 software thermal, 64 hardware thermal,
-- 128 power brake.
WITH busy AS (
    SELECT
        r.cluster,
        r.device,
        any_value(d.node) AS node,
        any_value(d.model) AS model,
        sum(r.busy_s) / 3600 AS busy_hours,
        sum(r.sm_clock_mhz_mean * r.busy_s) / sum(r.busy_s) AS clock_mhz,
        coalesce(sum(r.busy_s) FILTER (WHERE r.throttle_mask & 232 <> 0), 0) / 3600 AS hot_hours,
        bit_or(coalesce(r.throttle_mask, 0)) AS mask,
        max(r.temp_c_max)::DOUBLE AS temp_c
    FROM rollup_1h AS r
    INNER JOIN devices AS d ON r.cluster = d.cluster AND r.device = d.device
    WHERE
        r.bucket >= $since
        AND r.bucket < $until
        AND r.sm_clock_mhz_mean > 0
        AND r.busy_s >= 1800
        AND r.parent IS null
    GROUP BY r.cluster, r.device
),

judged AS (
    SELECT
        *,
        median(clock_mhz) OVER (PARTITION BY model) AS peers_mhz,
        count(*) OVER (PARTITION BY model) AS peers
    FROM busy
)

SELECT
    cluster,
    node,
    device,
    model,
    busy_hours,
    clock_mhz,
    peers_mhz,
    peers,
    100 * (1 - clock_mhz / peers_mhz) AS slower_pct,
    hot_hours,
    100 * hot_hours / busy_hours AS hot_pct,
    concat_ws(
        ', ',
        CASE WHEN mask & 8 <> 0 THEN 'hardware slowdown' END,
        CASE WHEN mask & 64 <> 0 THEN 'hardware too hot' END,
        CASE WHEN mask & 32 <> 0 THEN 'driver''s heat limit' END,
        CASE WHEN mask & 128 <> 0 THEN 'power brake' END
    ) AS reasons,
    temp_c
FROM judged
WHERE hot_hours > 0 OR (peers >= $least_peers AND clock_mhz < $slow * peers_mhz)
ORDER BY greatest(slower_pct, 0) * busy_hours DESC, hot_hours DESC, device ASC
LIMIT $most
