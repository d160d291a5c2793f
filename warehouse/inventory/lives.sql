-- When each pod that requests GPUs was created, scheduled and ended. A pod that the last list of
-- its cluster contains has not ended. Its queue is that of when it was placed.
SELECT
    p.cluster,
    p.namespace,
    if(q.id IS null, p.queue, q.value) AS queue,
    p.gpu_resource,
    p.gpu_request AS gpus,
    p.cpu_request_milli,
    p.memory_request_bytes,
    coalesce(p.created_at, p.scheduled_at, p.first_seen) AS created,
    coalesce(
        p.scheduled_at, p.started_at, CASE WHEN p.node IS NOT null THEN p.first_seen END
    ) AS begun,
    coalesce(
        p.finished_at,
        CASE
            WHEN p.last_seen >= l.last_list - INTERVAL 10 MINUTE THEN $until::TIMESTAMP
            ELSE p.last_seen
        END
    ) AS ended
FROM pod AS p
INNER JOIN last_lists AS l ON p.cluster = l.cluster
LEFT JOIN value_eras AS q
    ON
        q.kind = 'pod.queue' AND p.cluster = q.cluster AND p.uid = q.id
        AND coalesce(p.scheduled_at, p.started_at, $until::TIMESTAMP) >= q.holds_from
        AND coalesce(p.scheduled_at, p.started_at, $until::TIMESTAMP) < q.holds_to
WHERE p.gpu_request > 0
