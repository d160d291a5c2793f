-- Seconds by what the looks said, per device, cell (five minutes or an hour) and pod named;
-- `owner_id` null = the looks name nobody, or one who did not hold the device.
WITH named_devices AS (
    SELECT DISTINCT
        device_id,
        cluster,
        device
    FROM spans
),

hourly AS (
    SELECT
        d.device_id,
        time_bucket(INTERVAL 1 HOUR, r.bucket) AS bucket,
        r.namespace,
        r.pod,
        sum(r.idle_s) AS idle_s,
        sum(r.low_s) AS low_s,
        sum(r.busy_s) AS busy_s,
        sum(r.unknown_s) AS unknown_s
    FROM signal AS r
    INNER JOIN named_devices AS d
        ON r.cluster = d.cluster AND r.device = d.device
    WHERE r.bucket >= $since AND r.bucket < $until AND $step_s = 3600
    GROUP BY ALL
),

both_sizes AS (
    SELECT * FROM fine
    WHERE bucket >= $since
    UNION ALL
    SELECT h.*
    FROM hourly AS h
    ANTI JOIN fine_hours AS f ON h.device_id = f.device_id AND h.bucket = f.hour_at
),

names AS (
    SELECT
        device_id,
        namespace,
        pod,
        any_value(owner_id) AS owner_id
    FROM owners
    GROUP BY device_id, namespace, pod
)

SELECT
    b.device_id,
    b.bucket AS cell,
    n.owner_id,
    coalesce(b.idle_s, 0)::DOUBLE AS idle_s,
    coalesce(b.low_s, 0)::DOUBLE AS low_s,
    coalesce(b.busy_s, 0)::DOUBLE AS busy_s,
    coalesce(b.idle_s, 0)::DOUBLE + coalesce(b.low_s, 0) + coalesce(b.busy_s, 0)
    + coalesce(b.unknown_s, 0) AS covered_s
FROM both_sizes AS b
LEFT JOIN names AS n
    ON b.device_id = n.device_id AND b.namespace = n.namespace AND b.pod = n.pod
