-- The pods of the workloads in question: age, owner, protections, node.
SELECT
    p.cluster,
    p.namespace,
    p.pod,
    p.node,
    p.uid,
    p.workload_kind,
    p.phase,
    p.qos,
    p.cpu_request_milli,
    p.annotations,
    p.labels,
    n.ready,
    epoch_us(coalesce(p.started_at, p.scheduled_at, p.created_at)) AS started_us,
    epoch_us(p.finished_at) AS finished_us
FROM pod AS p
LEFT JOIN node AS n ON p.cluster = n.cluster AND p.node = n.node
WHERE p.uid IN (SELECT unnest($uids))
ORDER BY p.cluster, p.uid
