-- USD per GPU-hour of each node and model per bucket: the mean over the bucket, weighted by how
-- long each price held. A bucket that no price covers whole has none.
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
),

per_kind AS (
    SELECT
        kind,
        bucket,
        sum(loaded_usd_h * overlap_s) / sum(overlap_s) AS loaded_usd_h,
        sum(gpu_usd_h * overlap_s) / sum(overlap_s) AS gpu_usd_h,
        max(as_of) AS as_of
    FROM parts
    GROUP BY kind, bucket
    HAVING sum(overlap_s) >= $step_s - 1
)

SELECT
    s.cluster,
    s.node,
    s.gpu_model,
    p.bucket,
    p.loaded_usd_h,
    p.gpu_usd_h,
    p.as_of
FROM subjects AS s
INNER JOIN kinds AS k
    ON
        s.cluster = k.cluster
        AND s.gpu_model IS NOT DISTINCT FROM k.gpu_model
        AND s.provider = k.provider
        AND s.region = k.region
        AND s.zone = k.zone
        AND s.instance_type = k.instance_type
        AND s.capacity_type = k.capacity_type
        AND s.gpu_count IS NOT DISTINCT FROM k.gpu_count
INNER JOIN per_kind AS p ON k.kind = p.kind
