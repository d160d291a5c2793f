-- Every device that was allocated in the window to the workloads of a bucket, with its properties.
SELECT
    h.cluster,
    h.device,
    d.node,
    d.parent,
    d.model,
    d.interval_s,
    coalesce(d.weight, 1.0) AS weight
FROM (
    SELECT DISTINCT
        cluster,
        device
    FROM allocation
    WHERE
        start < $until AND "end" > $since
        AND ($buckets = 1 OR hash(cluster, namespace, workload_kind, workload) % $buckets = $bucket)
        AND (
            len($workloads) = 0
            OR list_contains(
                $workloads::VARCHAR[], concat_ws('/', cluster, namespace, workload_kind, workload)
            )
        )
) AS h
LEFT JOIN device AS d ON h.cluster = d.cluster AND h.device = d.device
ORDER BY h.cluster, h.device
