-- Pods that request GPUs, and from when until when they waited (null = they still wait). A pod that
-- is no longer in the inventory stopped waiting when it was last seen.
WITH last_lists AS (
    SELECT
        cluster,
        max(last_seen) - INTERVAL 15 MINUTE AS newest
    FROM pod
    GROUP BY cluster
)

SELECT
    p.cluster,
    p.namespace,
    p.paying_team AS team,
    p.namespace || '/' || p.workload_kind || '/' || p.workload AS workload,
    p.pod,
    coalesce(p.queue, '(none)') AS queue,
    coalesce(p.priority_class, '(none)') AS priority,
    p.gpu_request AS gpus,
    p.created_at,
    coalesce(p.scheduled_at, p.started_at) AS placed_at,
    CASE
        WHEN p.scheduled_at IS NOT null OR p.started_at IS NOT null
            THEN coalesce(p.scheduled_at, p.started_at)
        WHEN p.node IS NOT null THEN p.created_at
        WHEN coalesce(p.finished_at, p.deleted_at) IS NOT null
            THEN coalesce(p.finished_at, p.deleted_at)
        WHEN p.last_seen < last_lists.newest THEN p.last_seen
    END AS waited_until
FROM pod_owners AS p
INNER JOIN last_lists ON p.cluster = last_lists.cluster
WHERE
    p.gpu_request > 0
    AND p.created_at < $until
    AND ($cluster::VARCHAR IS null OR p.cluster = $cluster)
    AND ($team::VARCHAR IS null OR p.paying_team = $team)
    AND ($namespace::VARCHAR IS null OR p.namespace = $namespace)
