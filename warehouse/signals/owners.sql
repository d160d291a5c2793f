-- Who the rows of `rollup_5m` name in a window: device, namespace and pod, in this order. A stream
-- is a device, or a pod on a shared device. The power of a GPU does not describe one of its MIG
-- instances: `model`, a number in $models, and `tdp_w` are null for these.
WITH owners AS (
    SELECT DISTINCT
        cluster,
        device,
        namespace,
        pod,
        coalesce(sharers > 1, FALSE) AS shares
    FROM rollup_5m
    WHERE
        bucket >= $since AND bucket < $until
        AND device >= $first_device AND device < $last_device
),

model AS (
    SELECT
        unnest($models) AS gpu_model,
        unnest($tdps_w) AS tdp_w,
        unnest(range(len($models))) AS number
)

SELECT
    o.cluster,
    o.device,
    o.namespace,
    o.pod,
    o.shares,
    d.parent IS NULL AS whole_gpu,
    CASE WHEN d.parent IS NULL THEN m.tdp_w END AS tdp_w,
    CASE WHEN d.parent IS NULL THEN m.number END AS model,
    dense_rank() OVER (
        ORDER BY
            o.cluster,
            o.device,
            CASE WHEN o.shares THEN o.namespace || '/' || o.pod ELSE '' END
    ) AS stream
FROM owners AS o
LEFT JOIN device AS d ON o.cluster = d.cluster AND o.device = d.device
LEFT JOIN model AS m ON d.gpu_model = m.gpu_model
ORDER BY o.cluster, o.device, o.namespace, o.pod, o.shares
