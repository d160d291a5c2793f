-- States with the weight of their device: an instance its slices, an unpartitioned rest what the
-- instances leave of the GPU in that bucket.
WITH s AS (SELECT DISTINCT ON (cluster, device) * FROM spans),

capacity AS (
    SELECT
        c.cluster,
        c.device,
        c.bucket,
        any_value(s.parent) AS parent,
        any_value(s.weight) AS weight,
        any_value(s.kind) AS kind,
        any_value(s.node) AS node,
        any_value(s.pool) AS pool,
        any_value(s.model) AS model,
        sum(epoch(c.to_at) - epoch(c.from_at)) AS cap_s
    FROM cells AS c
    INNER JOIN s
        ON c.cluster = s.cluster AND c.device = s.device
    GROUP BY c.cluster, c.device, c.bucket
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

weighed AS (
    SELECT
        c.*,
        CASE
            WHEN c.kind = 'unpartitioned'
                THEN greatest(0, 1 - coalesce(p.gpu_s, 0) / c.cap_s)
            ELSE c.weight
        END AS weight_now
    FROM capacity AS c
    LEFT JOIN partitioned AS p
        ON c.cluster = p.cluster AND c.parent = p.parent AND c.bucket = p.bucket
)

SELECT
    w.cluster,
    w.device,
    w.bucket,
    s.namespace,
    s.workload_kind,
    s.workload,
    s.team,
    s.state,
    w.node,
    w.pool,
    w.model,
    s.seconds,
    s.seconds * w.weight_now AS gpu_seconds
FROM weighed AS w
INNER JOIN states AS s
    ON w.cluster = s.cluster AND w.device = s.device AND w.bucket = s.bucket
WHERE w.weight_now > 1e-6
UNION ALL
SELECT
    u.cluster,
    u.device,
    u.bucket,
    '',
    '',
    '',
    null,
    'unknown',
    u.node,
    u.pool,
    u.model,
    u.seconds,
    u.seconds * 1 AS gpu_seconds
FROM untracked AS u
