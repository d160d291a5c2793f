-- States with the weight of their device: an instance its slices, an unpartitioned rest what the
-- instances leave of the GPU in that bucket.
WITH capacity AS (
    SELECT
        v.device_id,
        v.bucket,
        any_value(d.cluster) AS cluster,
        any_value(d.parent) AS parent,
        any_value(d.weight) AS weight,
        any_value(d.kind) AS kind,
        sum(v.cap_s) AS cap_s
    FROM vacancies AS v
    INNER JOIN devices AS d ON v.device_id = d.device_id AND d.parent IS NOT null
    GROUP BY v.device_id, v.bucket
),

partitioned AS (
    SELECT
        cluster,
        parent,
        bucket,
        sum(cap_s * weight) AS gpu_s
    FROM capacity
    WHERE kind = 'instance'
    GROUP BY cluster, parent, bucket
),

rests AS (
    SELECT
        c.device_id,
        c.bucket,
        greatest(0, 1 - coalesce(p.gpu_s, 0) / c.cap_s) AS weight
    FROM capacity AS c
    LEFT JOIN partitioned AS p
        ON c.cluster = p.cluster AND c.parent = p.parent AND c.bucket = p.bucket
    WHERE c.kind = 'unpartitioned'
)

SELECT
    s.device_id,
    s.bucket,
    s.holder_id,
    s.state,
    s.seconds,
    s.seconds * coalesce(r.weight, d.weight) AS gpu_seconds
FROM states AS s
INNER JOIN devices AS d ON s.device_id = d.device_id
LEFT JOIN rests AS r ON s.device_id = r.device_id AND s.bucket = r.bucket
WHERE coalesce(r.weight, d.weight) > 1e-6
UNION ALL
SELECT
    device_id,
    bucket,
    0 AS holder_id,
    'unknown' AS state,
    seconds,
    seconds * 1.0 AS gpu_seconds
FROM untracked
