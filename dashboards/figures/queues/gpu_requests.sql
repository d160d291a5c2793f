-- Pods that request GPUs, and from when until when they waited (null = they still wait). A pod that
-- is no longer in the inventory stopped waiting when it was last seen. Team and queue are those of
-- when it was placed.
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
    y.team,
    p.namespace || '/' || p.workload_kind || '/' || p.workload AS workload,
    p.pod,
    coalesce(if(q.id IS null, p.queue, q.value), '(none)') AS queue,
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
INNER JOIN paying_teams AS y
    ON
        p.cluster = y.cluster AND p.uid = y.uid
        AND coalesce(p.scheduled_at, p.started_at, $until::TIMESTAMP) >= y.holds_from
        AND coalesce(p.scheduled_at, p.started_at, $until::TIMESTAMP) < y.holds_to
LEFT JOIN value_eras AS q
    ON
        q.kind = 'pod.queue' AND p.cluster = q.cluster AND p.uid = q.id
        AND coalesce(p.scheduled_at, p.started_at, $until::TIMESTAMP) >= q.holds_from
        AND coalesce(p.scheduled_at, p.started_at, $until::TIMESTAMP) < q.holds_to
WHERE
    p.gpu_request > 0
    AND p.created_at < $until
    AND ($cluster::VARCHAR IS null OR p.cluster = $cluster)
    AND ($team::VARCHAR IS null OR y.team = $team)
    AND ($namespace::VARCHAR IS null OR p.namespace = $namespace)
