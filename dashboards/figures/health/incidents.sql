-- The stored incidents, the newest first.
SELECT
    id,
    start,
    "end",
    cluster,
    cause,
    class,
    step,
    why,
    workloads,
    nodes,
    devices,
    gpus,
    lost_gpu_hours,
    recovery_gpu_hours,
    usd,
    evidence
FROM incident
WHERE
    start >= $since
    AND start < $until
    AND ($cluster::VARCHAR IS null OR cluster = $cluster)
    AND (
        $namespace::VARCHAR IS null
        OR list_contains(from_json(namespaces, '["VARCHAR"]'), $namespace)
    )
ORDER BY start DESC, id ASC
LIMIT $most
