-- Idle power of each model as the accounting step had written it by each of some times: watts, and
-- whether it was learned or is a prior. The band of an hour is read half an hour after the hour
-- ended: accounting has written it by then, and will not change it. A band older than three hours
-- is not read.
WITH times AS (
    SELECT
        unnest(range(len($times))) AS k,
        unnest($times)::TIMESTAMP AS at
),

five_minutes AS (
    SELECT
        d.gpu_model,
        r.bucket,
        max(r.band_w) AS band_w,
        max(r.band) AS band
    FROM signal AS r
    INNER JOIN device AS d ON r.cluster = d.cluster AND r.device = d.device
    WHERE
        r.bucket >= $since::TIMESTAMP - INTERVAL 3 HOUR AND r.bucket < $until
        AND r.band_w IS NOT NULL
    GROUP BY ALL
),

-- The hour of a bucket is computed once per bucket, not once per device in it.
written AS (
    SELECT
        gpu_model,
        date_trunc('hour', bucket) AS hour,
        max(band_w) AS band_w,
        max(band) AS band
    FROM five_minutes
    GROUP BY ALL
),

models AS (
    SELECT DISTINCT gpu_model
    FROM written
)

SELECT
    t.k,
    m.gpu_model,
    w.band_w,
    w.band
FROM times AS t
CROSS JOIN models AS m
ASOF INNER JOIN written AS w
    ON m.gpu_model = w.gpu_model AND t.at >= w.hour + INTERVAL 90 MINUTE
WHERE w.hour >= t.at - INTERVAL 3 HOUR
ORDER BY t.k, m.gpu_model
