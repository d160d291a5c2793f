-- Gaps between two findings in which no device sample is valid, while the same pods of the workload
-- kept their devices: telemetry is missing, and nothing shows that the waste had ended. Where
-- something else ended a finding, as work of the host does, a sample lies in the gap, or the one
-- before it is valid to its end.
WITH seen AS (
    SELECT DISTINCT g.number
    FROM gap_devices AS g
    INNER JOIN sample AS s
        ON
            g.cluster = s.cluster
            AND g.device = s.device
            AND g.until > s.ts
            AND (
                g.since <= s.ts
                OR g.until <= s.ts + to_microseconds((coalesce(s.interval_s, 60) * 1500000)::BIGINT)
            )
    WHERE s.ts >= $since::TIMESTAMP - INTERVAL 1 HOUR AND s.ts < $until::TIMESTAMP
)

SELECT DISTINCT number
FROM gap_devices
WHERE
    number NOT IN (SELECT seen.number FROM seen)
    AND number NOT IN (SELECT gap_uses.number FROM gap_uses)
ORDER BY number
