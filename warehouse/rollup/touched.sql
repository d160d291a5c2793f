-- Whether the samples of a stretch's devices differ from those that were rolled up. Stored samples
-- never change, so comparing their number is enough. A bucket that only earlier samples reach has a
-- row with none of its own.
WITH sampled AS (
    SELECT
        device,
        time_bucket(INTERVAL 5 MINUTES, ts) AS bucket,
        count(*) AS n
    FROM sample
    WHERE cluster = $cluster AND ts >= $first AND ts < $last
    GROUP BY ALL
),

rolled AS (
    SELECT
        device,
        bucket,
        sum(n) AS n
    FROM rollup_5m
    WHERE cluster = $cluster AND bucket >= $first AND bucket < $last
    GROUP BY ALL
)

SELECT
    coalesce(l.device, r.device) AS device,
    bool_or(l.n IS DISTINCT FROM nullif(r.n, 0)) AS touched
FROM sampled AS l
FULL JOIN rolled AS r ON l.device = r.device AND l.bucket = r.bucket
GROUP BY ALL
