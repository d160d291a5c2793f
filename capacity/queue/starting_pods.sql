-- Pods with a node whose containers wait for an image or a volume, with what they wait for.
SELECT
    p.cluster,
    p.namespace,
    p.workload_kind,
    p.workload,
    p.paying_team AS team,
    p.pod,
    p.queue,
    p.priority_class,
    p.priority,
    p.gpu_request AS gpus,
    epoch_us(coalesce(p.created_at, p.first_seen)) AS begin_us,
    p.containers
FROM pod_owners AS p
WHERE
    p.phase = 'Pending' AND p.node IS NOT null AND p.started_at IS NOT null
    AND p.gpu_request > 0
    AND coalesce(p.created_at, p.first_seen) < $until
    AND p.last_seen >= $until::TIMESTAMP - INTERVAL 10 MINUTE
ORDER BY p.cluster, p.namespace, p.pod, p.uid
