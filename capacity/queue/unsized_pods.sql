-- Pods without a node that request GPUs, but not how many: a share by memory, or a misread request.
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
    p.gpu_resource,
    epoch_us(coalesce(p.created_at, p.first_seen)) AS begin_us
FROM pod_owners AS p
WHERE
    p.phase = 'Pending' AND p.node IS null
    AND p.gpu_resource IS NOT null AND p.gpu_request IS null
    AND coalesce(p.created_at, p.first_seen) < $until
    AND p.last_seen >= $until::TIMESTAMP - INTERVAL 10 MINUTE
ORDER BY p.cluster, p.namespace, p.pod, p.uid
