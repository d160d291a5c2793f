-- Seconds by what the looks said, per device, cell (five minutes or an hour) and pod named.
WITH both_sizes AS (
    SELECT * FROM fine
    WHERE bucket >= $since
    UNION ALL
    SELECT
        r.cluster,
        r.device,
        r.bucket,
        r.namespace,
        r.pod,
        r.idle_s,
        r.low_s,
        r.busy_s,
        r.conflict_s,
        r.blind_s
    FROM rollup_1h AS r
    ANTI JOIN fine_hours AS f
        ON r.cluster = f.cluster AND r.device = f.device AND r.bucket = f.hour_at
    WHERE r.bucket >= $since AND r.bucket < $until AND $step_s = 3600
)

SELECT
    cluster,
    device,
    bucket AS cell,
    namespace,
    pod,
    coalesce(idle_s, 0)::DOUBLE AS idle_s,
    coalesce(low_s, 0)::DOUBLE AS low_s,
    coalesce(busy_s, 0)::DOUBLE AS busy_s,
    coalesce(idle_s, 0)::DOUBLE + coalesce(low_s, 0) + coalesce(busy_s, 0)
    + coalesce(conflict_s, 0) + coalesce(blind_s, 0) AS covered_s
FROM both_sizes
