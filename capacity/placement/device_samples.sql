-- When each device was last sampled before a given time, how much of the day before was covered,
-- and for how long its sources contradicted each other in the hour before.
WITH wanted_devices AS (
    SELECT
        unnest($clusters) AS cluster,
        unnest($devices) AS device
),

raw AS (
    SELECT
        s.cluster,
        s.device,
        max(s.ts + to_microseconds((coalesce(s.interval_s, 60) * 1e6)::BIGINT)) AS seen_at
    FROM sample AS s
    INNER JOIN wanted_devices AS a ON s.cluster = a.cluster AND s.device = a.device
    WHERE s.ts >= $until::TIMESTAMP - INTERVAL 1 HOUR AND s.ts < $until
    GROUP BY s.cluster, s.device
),

rolled AS (
    SELECT
        r.cluster,
        r.device,
        max(r.bucket + INTERVAL 5 MINUTE) FILTER (WHERE r.n > 0) AS seen_at,
        sum(r.covered_s) AS covered_s,
        sum(r.conflict_s) FILTER (WHERE r.bucket >= $until::TIMESTAMP - INTERVAL 1 HOUR)
            AS conflict_s,
        min(r.bucket) AS first_at
    FROM rollup_5m AS r
    INNER JOIN wanted_devices AS a ON r.cluster = a.cluster AND r.device = a.device
    WHERE
        r.bucket >= $until::TIMESTAMP - INTERVAL 1 DAY
        AND r.bucket <= $until::TIMESTAMP - INTERVAL 5 MINUTE
    GROUP BY r.cluster, r.device
)

SELECT
    a.cluster,
    a.device,
    epoch_us(least(coalesce(greatest(w.seen_at, r.seen_at), w.seen_at, r.seen_at), $until))
        AS seen_us,
    least(
        1.0,
        r.covered_s
        / greatest(300, epoch(time_bucket(INTERVAL 5 MINUTE, $until)) - epoch(r.first_at))
    ) AS coverage,
    coalesce(r.conflict_s, 0) AS conflict_s
FROM wanted_devices AS a
LEFT JOIN raw AS w ON a.cluster = w.cluster AND a.device = w.device
LEFT JOIN rolled AS r ON a.cluster = r.cluster AND a.device = r.device
ORDER BY a.cluster, a.device
