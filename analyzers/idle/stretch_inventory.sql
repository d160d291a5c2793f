-- The pods of the workloads in question: age, owner, protections, node, containers.
SELECT
    p.cluster,
    p.node,
    p.uid,
    p.workload_kind,
    p.phase,
    p.cpu_request_milli,
    p.annotations,
    p.labels,
    p.namespace,
    p.containers,
    epoch_us(coalesce(p.started_at, p.scheduled_at, p.created_at)) AS started_us
FROM pod AS p
WHERE p.uid IN (SELECT unnest($uids))
ORDER BY p.cluster, p.uid
