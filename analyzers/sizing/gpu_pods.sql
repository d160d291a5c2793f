-- The requests of pods that hold GPUs, and a GPU's share of their node.
WITH gpu_pods AS (
    SELECT
        a.cluster,
        a.pod_uid,
        any_value(a.workload_kind) AS workload_kind,
        any_value(a.workload) AS workload,
        any_value(a.team) AS team,
        count(DISTINCT a.device) AS gpus,
        max(epoch(least(a."end", $until)) - epoch(greatest(a.start, $since))) / 3600 AS hours
    FROM allocation AS a
    WHERE a.start < $until AND a."end" > $since AND coalesce(a.share, 1.0) > 0.999
    GROUP BY a.cluster, a.pod_uid
)

SELECT
    p.cluster,
    p.namespace,
    p.pod,
    p.node,
    h.workload_kind,
    h.workload,
    h.team,
    h.gpus,
    h.hours,
    p.cpu_request_milli,
    p.cpu_limit_milli,
    p.memory_request_bytes,
    n.cpu_milli / n.gpu_count AS fair_milli,
    n.memory_bytes / n.gpu_count AS fair_bytes,
    n.gpu_model
FROM gpu_pods AS h
INNER JOIN pod AS p ON h.cluster = p.cluster AND h.pod_uid = p.uid
LEFT JOIN node AS n
    ON p.cluster = n.cluster AND p.node = n.node AND n.gpu_count > 0 AND n.sharing <> 'mig'
WHERE h.hours > 0
ORDER BY p.cluster, p.namespace, p.pod
