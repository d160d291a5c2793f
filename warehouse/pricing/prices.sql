-- USD per GPU-hour of each timeline of devices per bucket: the mean over the bucket, weighted by
-- how long each price was valid for what the devices were. A bucket that is not fully covered by
-- prices has none. `estimated`: a part of it is an estimate.
WITH buckets AS (
    SELECT unnest(
        generate_series($since, $until - INTERVAL 1 MICROSECOND, to_seconds($step_s))
    ) AS bucket
),

eras AS (
    SELECT
        timeline,
        unnest(any_value(eras), recursive := true)
    FROM timelines
    GROUP BY timeline
),

priced_eras AS (
    SELECT
        e.timeline,
        greatest(t.from_at, e.from_at) AS from_at,
        least(t.to_at, e.to_at) AS to_at,
        t.loaded_usd_h,
        t.gpu_usd_h,
        t.as_of,
        t.estimated
    FROM eras AS e
    INNER JOIN stretches AS t ON e.kind = t.kind AND e.to_at > t.from_at AND e.from_at < t.to_at
),

parts AS (
    SELECT
        t.timeline,
        b.bucket,
        t.loaded_usd_h,
        t.gpu_usd_h,
        t.as_of,
        t.estimated,
        epoch(least(t.to_at, b.bucket + to_seconds($step_s)))
        - epoch(greatest(t.from_at, b.bucket)) AS overlap_s
    FROM priced_eras AS t
    INNER JOIN buckets AS b
        ON t.from_at < b.bucket + to_seconds($step_s) AND t.to_at > b.bucket
)

SELECT
    timeline,
    bucket,
    sum((loaded_usd_h * overlap_s)::DECIMAL(38, 12))::DOUBLE / sum(overlap_s) AS loaded_usd_h,
    sum((gpu_usd_h * overlap_s)::DECIMAL(38, 12))::DOUBLE / sum(overlap_s) AS gpu_usd_h,
    max(as_of) AS as_of,
    bool_or(estimated) AS estimated
FROM parts
GROUP BY timeline, bucket
HAVING sum(overlap_s) >= $step_s - 1
