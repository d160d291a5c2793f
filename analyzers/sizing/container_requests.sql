-- The requests of pods of workloads that hold GPUs in the window, container by container.
WITH holding AS (
    SELECT DISTINCT
        cluster,
        namespace,
        workload_kind,
        workload
    FROM allocation
    WHERE start < $until AND "end" > $since AND workload IS NOT null
)

SELECT
    p.cluster,
    p.namespace,
    p.workload_kind,
    p.workload,
    p.pod,
    p.node,
    p.team,
    p.containers,
    p.gpu_request AS gpus,
    coalesce(p.last_seen, $until) >= $since
    AND coalesce(p.phase, 'Running') NOT IN ('Succeeded', 'Failed') AS lives
FROM pod AS p
INNER JOIN holding AS h
    ON
        p.cluster = h.cluster
        AND p.namespace = h.namespace
        AND p.workload_kind = h.workload_kind
        AND p.workload = h.workload
WHERE
    p.containers IS NOT null
    AND coalesce(p.last_seen, $until) >= $lookback_start
    AND coalesce(p.created_at, p.first_seen, $since) < $until
ORDER BY p.cluster, p.namespace, p.pod, p.last_seen
