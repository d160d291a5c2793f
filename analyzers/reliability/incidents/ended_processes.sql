-- Pods with GPUs whose containers failed, restarted or wait, as last polled.
SELECT
    p.cluster,
    coalesce(p.namespace, '') AS namespace,
    p.workload_kind,
    p.workload,
    coalesce(p.pod, '') AS pod,
    coalesce(p.node, '') AS node,
    coalesce(p.phase, 'Unknown') AS phase,
    coalesce(p.started_at, p.scheduled_at, p.created_at) AS started_at,
    p.finished_at,
    p.last_seen,
    coalesce(p.containers, '[]') AS containers
FROM pod_owners AS p
WHERE
    p.gpu_request > 0
    AND coalesce(p.finished_at, p.last_seen) >= $since
    AND coalesce(p.created_at, p.started_at, p.first_seen) < $until
    AND (
        p.phase = 'Failed'
        OR contains(p.containers, '"restarts"')
        OR contains(p.containers, '"last_exit"')
        OR contains(p.containers, '"oom_killed"')
    )
ORDER BY ALL
