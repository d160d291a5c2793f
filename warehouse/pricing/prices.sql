-- USD per GPU-hour of each kind of device per bucket: the mean over the bucket, weighted by how
-- long each price was valid. A bucket that is not fully covered by prices has none.
WITH buckets AS (
    SELECT unnest(
        generate_series($since, $until - INTERVAL 1 MICROSECOND, to_seconds($step_s))
    ) AS bucket
),

parts AS (
    SELECT
        t.kind,
        b.bucket,
        t.loaded_usd_h,
        t.gpu_usd_h,
        t.as_of,
        epoch(least(t.to_at, b.bucket + to_seconds($step_s)))
        - epoch(greatest(t.from_at, b.bucket)) AS overlap_s
    FROM stretches AS t
    INNER JOIN buckets AS b
        ON t.from_at < b.bucket + to_seconds($step_s) AND t.to_at > b.bucket
)

SELECT
    kind,
    bucket,
    sum((loaded_usd_h * overlap_s)::DECIMAL(38, 12))::DOUBLE / sum(overlap_s) AS loaded_usd_h,
    sum((gpu_usd_h * overlap_s)::DECIMAL(38, 12))::DOUBLE / sum(overlap_s) AS gpu_usd_h,
    max(as_of) AS as_of
FROM parts
GROUP BY kind, bucket
HAVING sum(overlap_s) >= $step_s - 1
