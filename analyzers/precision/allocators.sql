-- Memory that frameworks reserved and used for tensors, by workload, with the allocated hours.
SELECT
    o.cluster,
    o.namespace,
    o.workload_kind,
    o.workload,
    max(o.team) AS team,
    sum(s.interval_s) / 3600 AS pod_hours,
    count(DISTINCT s.pod) AS pods,
    avg(s.reserved_bytes) AS reserved,
    avg(s.allocated_bytes) AS allocated,
    max(s.allocated_bytes) AS most_allocated,
    1 - sum(s.allocated_bytes) / sum(s.reserved_bytes) AS fragmented,
    min(1 - s.allocated_bytes / s.reserved_bytes) AS least_fragmented
FROM step_sample AS s
INNER JOIN owners AS o ON s.cluster = o.cluster AND s.namespace = o.namespace AND s.pod = o.pod
WHERE
    s.ts >= $since AND s.ts < $until
    AND s.reserved_bytes > 0 AND s.allocated_bytes BETWEEN 0 AND s.reserved_bytes
    AND o.workload IS NOT null
GROUP BY o.cluster, o.namespace, o.workload_kind, o.workload
ORDER BY o.cluster, o.namespace, o.workload_kind, o.workload
