-- Lifetimes of the pods that request GPUs, within the window: how they ended, and their
-- annotations. A pod in the last poll is running; one that vanished ended when it was last seen.
SELECT
    p.cluster,
    coalesce(p.namespace, '') AS namespace,
    p.workload_kind,
    p.workload,
    p.team,
    coalesce(p.pod, '') AS pod,
    hash(p.cluster, p.namespace, p.pod) AS who,
    p.node,
    coalesce(p.phase, 'Unknown') AS phase,
    p.gpu_request AS gpus,
    p.labels,
    p.annotations,
    p.created_at,
    p.deleted_at,
    coalesce(p.started_at, p.scheduled_at, p.created_at, p.first_seen) AS start,
    coalesce(
        p.finished_at,
        CASE WHEN p.last_seen < l.last_list - INTERVAL 10 MINUTE THEN p.last_seen END
    ) AS ended,
    coalesce(ended, l.last_list) AS "end"
FROM pod_owners AS p
INNER JOIN last_lists AS l ON p.cluster = l.cluster
WHERE
    p.node IS NOT null
    AND p.gpu_request > 0
    AND start < $until
    AND coalesce(ended, l.last_list) > $since
ORDER BY p.cluster, p.namespace, p.workload_kind, p.workload, start, p.pod
