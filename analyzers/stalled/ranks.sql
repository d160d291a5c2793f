-- The pods of jobs of some kinds that existed in the window: one row each. A pod in the last list
-- of pods still exists; one that vanished ended when it was last seen.
SELECT
    p.cluster,
    p.namespace,
    p.workload_kind,
    p.workload,
    p.team,
    p.pod,
    hash(p.cluster, p.namespace, p.pod) AS who,
    p.node,
    coalesce(p.phase, 'Unknown') AS phase,
    coalesce(p.gpu_request, 0) AS gpus,
    p.annotations,
    coalesce(p.started_at, p.scheduled_at, p.created_at, p.first_seen) AS start,
    coalesce(
        p.finished_at,
        CASE WHEN p.last_seen < l.last_list - INTERVAL 10 MINUTE THEN p.last_seen END
    ) AS ended
FROM pod AS p
INNER JOIN last_lists AS l ON p.cluster = l.cluster
WHERE
    list_contains($kinds, p.workload_kind)
    AND ($all_pods OR list_contains($chosen, hash(p.cluster, p.namespace, p.pod)))
    AND p.workload IS NOT null
    AND p.gpu_request > 0
    AND coalesce(p.started_at, p.scheduled_at, p.created_at, p.first_seen, $since) < $until
    AND coalesce(ended, $until) > $since
ORDER BY ALL
