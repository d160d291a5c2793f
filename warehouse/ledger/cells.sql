-- Device time that is not in `plain`, in cells: five minutes in cut hours, else the ledger's
-- bucket.
WITH others AS (
    SELECT b.*
    FROM buckets AS b
    ANTI JOIN plain AS p ON b.device_id = p.device_id AND b.bucket = p.bucket
),

both_sizes AS (
    SELECT
        o.*,
        o.bucket AS cell,
        $step_s AS cell_s
    FROM others AS o
    ANTI JOIN fine_hours AS f ON o.device_id = f.device_id AND o.bucket = f.hour_at
    UNION ALL BY NAME
    SELECT
        o.*,
        unnest(generate_series(o.bucket, o.bucket + INTERVAL 55 MINUTE, INTERVAL 5 MINUTE)) AS cell,
        300 AS cell_s
    FROM others AS o
    SEMI JOIN fine_hours AS f ON o.device_id = f.device_id AND o.bucket = f.hour_at
)

SELECT
    device_id,
    kind,
    bucket,
    cell,
    cell_s,
    greatest(cell, from_at) AS from_at,
    least(cell + to_seconds(cell_s), to_at) AS to_at
FROM both_sizes
WHERE greatest(cell, from_at) < least(cell + to_seconds(cell_s), to_at)
