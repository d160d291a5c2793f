-- Power, and energy over time, of devices in each five minutes without an active sample, with the
-- newest idle power of their model that accounting wrote: are they idle or do they work a little?
-- The power of a GPU in parts, or shared, does not describe one of its pods.
WITH chosen AS (
    SELECT
        unnest($clusters) AS cluster,
        unnest($devices) AS device
),

read AS (
    SELECT
        s.cluster,
        s.device,
        time_bucket(INTERVAL 5 MINUTE, s.ts) AS bucket,
        s.power_w,
        coalesce(s.gr_engine_active, s.gpu_util_pct / 100) AS engine,
        coalesce(s.interval_s, 60)::DOUBLE AS interval_s,
        s.energy_mj - lag(s.energy_mj) OVER device AS used_mj,
        epoch(s.ts) - epoch(lag(s.ts) OVER device) AS seconds
    FROM sample AS s
    INNER JOIN chosen AS c ON s.cluster = c.cluster AND s.device = c.device
    WHERE
        s.ts >= $since AND s.ts < $until AND s.parent IS NULL AND coalesce(s.sharers, 1) <= 1
    WINDOW device AS (PARTITION BY s.cluster, s.device ORDER BY s.ts)
),

band AS (
    SELECT
        cluster,
        device,
        max_by(band_w, bucket) AS band_w
    FROM signal
    WHERE bucket >= $since::TIMESTAMP - INTERVAL 3 HOUR AND bucket < $until
    GROUP BY cluster, device
)

SELECT
    r.cluster,
    r.device,
    r.bucket,
    any_value(d.model) AS model,
    any_value(b.band_w)::DOUBLE AS band_w,
    avg(r.power_w)::DOUBLE AS power_w,
    sum(r.used_mj) FILTER (WHERE r.used_mj >= 0)::DOUBLE AS energy_mj,
    coalesce(sum(r.seconds) FILTER (WHERE r.used_mj >= 0), 0)::DOUBLE AS seconds,
    max(r.interval_s) AS interval_s
FROM read AS r
LEFT JOIN device AS d ON r.cluster = d.cluster AND r.device = d.device
LEFT JOIN band AS b ON r.cluster = b.cluster AND r.device = b.device
GROUP BY r.cluster, r.device, r.bucket
HAVING max(r.engine) <= $rest_engine
ORDER BY r.cluster, r.device, r.bucket
