-- The weight of a GPU's unpartitioned part: what its instances leave of it in that bucket.
WITH capacity AS (
    SELECT
        b.device_id,
        b.bucket,
        any_value(d.cluster) AS cluster,
        any_value(d.parent) AS parent,
        any_value(d.weight) AS weight,
        any_value(d.kind) AS kind,
        sum(
            epoch(least(b.to_at, b.bucket + to_seconds($step_s)))
            - epoch(greatest(b.from_at, b.bucket))
        ) AS cap_s
    FROM buckets AS b
    INNER JOIN devices AS d ON b.device_id = d.device_id AND d.parent IS NOT null
    GROUP BY b.device_id, b.bucket
),

partitioned AS (
    SELECT
        cluster,
        parent,
        bucket,
        sum((cap_s * weight)::DECIMAL(18, 9))::DOUBLE AS gpu_s
    FROM capacity
    WHERE kind = 'instance'
    GROUP BY cluster, parent, bucket
)

SELECT
    c.device_id,
    c.bucket,
    greatest(0, 1 - coalesce(p.gpu_s, 0) / c.cap_s) AS weight
FROM capacity AS c
LEFT JOIN partitioned AS p
    ON c.cluster = p.cluster AND c.parent = p.parent AND c.bucket = p.bucket
WHERE c.kind = 'unpartitioned'
