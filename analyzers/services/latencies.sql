-- Workloads with known latencies, and the service level that the owner declares.
SELECT
    o.cluster,
    o.namespace,
    o.workload_kind,
    o.workload,
    max(o.team) AS team,
    max_by(o.slo, o.last_seen) FILTER (WHERE o.slo IS NOT null) AS slo,
    list_sort(list(DISTINCT s.metric)) AS metrics
FROM latency_sample AS s
INNER JOIN owners AS o ON s.cluster = o.cluster AND s.namespace = o.namespace AND s.pod = o.pod
WHERE s.ts >= $since AND s.ts < $until AND o.workload IS NOT null
GROUP BY o.cluster, o.namespace, o.workload_kind, o.workload
ORDER BY o.cluster, o.namespace, o.workload_kind, o.workload
