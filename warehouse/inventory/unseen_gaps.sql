-- Gaps between two findings without any device sample, while the same pods of the workload kept
-- their devices: telemetry is missing, and nothing shows that the waste had ended.
WITH seen AS (
    SELECT DISTINCT g.number
    FROM gap_devices AS g
    INNER JOIN sample
        ON
            g.cluster = sample.cluster
            AND g.device = sample.device
            AND g.since < sample.ts
            AND g.until > sample.ts
    WHERE sample.ts >= $since::TIMESTAMP AND sample.ts < $until::TIMESTAMP
)

SELECT DISTINCT number
FROM gap_devices
WHERE number NOT IN (SELECT seen.number FROM seen)
ORDER BY number
