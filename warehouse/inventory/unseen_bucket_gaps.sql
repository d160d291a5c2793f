-- As unseen_gaps.sql, by five-minute buckets: raw samples of weeks ago may be gone. Findings of
-- buckets end and begin with one where telemetry is missing.
WITH seen AS (
    SELECT DISTINCT g.number
    FROM gap_devices AS g
    INNER JOIN rollup_5m AS r
        ON
            g.cluster = r.cluster
            AND g.device = r.device
            AND r.n > 0
            AND g.until > r.bucket
            AND g.since < r.bucket + INTERVAL 5 MINUTE
    WHERE
        r.bucket > $since::TIMESTAMP - INTERVAL 5 MINUTE
        AND r.bucket < $until::TIMESTAMP
)

SELECT DISTINCT number
FROM gap_devices
WHERE
    number NOT IN (SELECT seen.number FROM seen)
    AND number NOT IN (SELECT gap_uses.number FROM gap_uses)
ORDER BY number
