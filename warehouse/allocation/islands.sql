-- Stretches of a mixed device in which one pod is named in every bucket that has device samples.
SELECT
    r.cluster,
    r.device,
    r.namespace,
    r.pod,
    r.bucket,
    dense_rank() OVER (PARTITION BY r.cluster, r.device ORDER BY r.bucket)
    - row_number() OVER (
        PARTITION BY r.cluster, r.device, r.namespace, r.pod ORDER BY r.bucket
    ) AS island
FROM rollup_5m AS r
INNER JOIN mixed AS x ON r.cluster = x.cluster AND r.device = x.device
WHERE r.bucket >= $since AND r.bucket < $until
