-- The device's existence cut into cells: five minutes in cut hours, else the ledger's bucket.
WITH buckets AS (
    SELECT
        device_id,
        kind,
        from_at,
        to_at,
        unnest(
            generate_series(
                time_bucket(to_seconds($step_s), from_at),
                to_at - INTERVAL 1 MICROSECOND,
                to_seconds($step_s)
            )
        ) AS bucket
    FROM spans
),

both_sizes AS (
    SELECT
        b.*,
        b.bucket AS cell,
        $step_s AS cell_s
    FROM buckets AS b
    ANTI JOIN fine_hours AS f ON b.device_id = f.device_id AND b.bucket = f.hour_at
    UNION ALL
    SELECT
        b.*,
        unnest(generate_series(b.bucket, b.bucket + INTERVAL 55 MINUTE, INTERVAL 5 MINUTE)),
        300
    FROM buckets AS b
    SEMI JOIN fine_hours AS f ON b.device_id = f.device_id AND b.bucket = f.hour_at
)

SELECT
    device_id,
    kind,
    bucket,
    cell,
    greatest(cell, from_at) AS from_at,
    least(cell + to_seconds(cell_s), to_at) AS to_at
FROM both_sizes
WHERE greatest(cell, from_at) < least(cell + to_seconds(cell_s), to_at)
