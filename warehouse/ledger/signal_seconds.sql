-- Seconds by state as the signals show them, per device, cell (five minutes or an hour) and named
-- pod. `owner_id` null = the samples name no pod, or a pod that did not hold the device. Samples
-- without a name belong to the pod that holds the whole device throughout the cell: an exporter
-- that lost its pod labels in the middle of an hour still measures the device.
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
        sum(r.unknown_s) AS unknown_s,
        sum(r.effective * (r.idle_s + r.low_s + r.busy_s))
        / nullif(
            sum(r.idle_s + r.low_s + r.busy_s) FILTER (WHERE r.effective IS NOT null), 0
        ) AS effective
    FROM signal AS r
    INNER JOIN named_devices AS d
        ON r.cluster = d.cluster AND r.device = d.device
    WHERE r.bucket >= $since AND r.bucket < $until AND $step_s = 3600
    GROUP BY ALL
),

both_sizes AS (
    SELECT
        *,
        bucket + INTERVAL 5 MINUTE AS cell_end,
        CASE WHEN pod = '' THEN device_id END AS unnamed_id
    FROM fine
    WHERE bucket >= $since
    UNION ALL BY NAME
    SELECT
        h.*,
        h.bucket + to_seconds($step_s) AS cell_end,
        CASE WHEN h.pod = '' THEN h.device_id END AS unnamed_id
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
    coalesce(n.owner_id, o.owner_id) AS owner_id,
    sum(coalesce(b.idle_s, 0)::DECIMAL(18, 9))::DOUBLE AS idle_s,
    sum(coalesce(b.low_s, 0)::DECIMAL(18, 9))::DOUBLE AS low_s,
    sum(coalesce(b.busy_s, 0)::DECIMAL(18, 9))::DOUBLE AS busy_s,
    sum(
        (
            coalesce(b.idle_s, 0)::DOUBLE + coalesce(b.low_s, 0) + coalesce(b.busy_s, 0)
            + coalesce(b.unknown_s, 0)
        )::DECIMAL(18, 9)
    )::DOUBLE AS covered_s,
    sum(b.effective * (b.idle_s + b.low_s + b.busy_s))
    / nullif(
        sum(b.idle_s + b.low_s + b.busy_s) FILTER (WHERE b.effective IS NOT null), 0
    ) AS effective
FROM both_sizes AS b
LEFT JOIN names AS n
    ON b.device_id = n.device_id AND b.namespace = n.namespace AND b.pod = n.pod
LEFT JOIN owners AS o
    ON
        b.unnamed_id = o.device_id AND o.share >= 1
        AND b.bucket >= o.start_at AND b.cell_end <= o.end_at
GROUP BY b.device_id, b.bucket, coalesce(n.owner_id, o.owner_id)
