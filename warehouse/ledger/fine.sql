-- Five-minute signals: all of them when the ledger's step is five minutes, else those of the cut
-- hours. The join is by bucket: equality is cheaper than computing the hour of each row of a day.
WITH cut_buckets AS (
    SELECT
        device_id,
        cluster,
        device,
        unnest(generate_series(hour_at, hour_at + INTERVAL 55 MINUTE, INTERVAL 5 MINUTE)) AS bucket
    FROM cuts
    WHERE $step_s = 3600
),

named_devices AS (
    SELECT DISTINCT
        device_id,
        cluster,
        device
    FROM spans
    WHERE $step_s = 300
)

SELECT
    c.device_id,
    r.bucket,
    r.namespace,
    r.pod,
    r.idle_s,
    r.low_s,
    r.busy_s,
    r.unknown_s,
    r.effective
FROM signal AS r
INNER JOIN cut_buckets AS c
    ON r.cluster = c.cluster AND r.device = c.device AND r.bucket = c.bucket
WHERE
    $step_s = 3600
    AND r.bucket >= $since - to_seconds($startup_s) - INTERVAL 5 MINUTE
    AND r.bucket < $until
UNION ALL BY NAME
SELECT
    d.device_id,
    r.bucket,
    r.namespace,
    r.pod,
    r.idle_s,
    r.low_s,
    r.busy_s,
    r.unknown_s,
    r.effective
FROM signal AS r
INNER JOIN named_devices AS d
    ON r.cluster = d.cluster AND r.device = d.device
WHERE
    $step_s = 300
    AND r.bucket >= $since - to_seconds($startup_s) - INTERVAL 5 MINUTE
    AND r.bucket < $until
