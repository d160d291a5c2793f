-- As unseen_gaps.sql, by the five-minute buckets that lie in a gap whole: raw samples of weeks ago
-- may be gone.
WITH expected AS (
    SELECT
        number,
        cluster,
        device,
        unnest(
            generate_series(
                time_bucket(INTERVAL 5 MINUTE, since + INTERVAL 299999999 MICROSECOND),
                until - INTERVAL 5 MINUTE,
                INTERVAL 5 MINUTE
            )
        ) AS bucket
    FROM gap_devices
),

seen AS (
    SELECT DISTINCT e.number
    FROM expected AS e
    INNER JOIN rollup_5m AS r
        ON
            e.cluster = r.cluster
            AND e.device = r.device
            AND e.bucket = r.bucket
            AND r.n > 0
    WHERE r.bucket >= $since::TIMESTAMP AND r.bucket < $until::TIMESTAMP
)

SELECT DISTINCT number
FROM gap_devices
WHERE number NOT IN (SELECT seen.number FROM seen)
ORDER BY number
