-- Requests of GPUs by workload, the pods that were created in the same minute together: when they
-- were created, all placed and all ended. Null = not placed yet; not ended yet.
SELECT
    p.cluster,
    epoch(min(p.created_at)) AS created_s,
    CASE
        WHEN bool_and(p.scheduled_at IS NOT null) THEN epoch(max(p.scheduled_at))
    END AS placed_s,
    CASE WHEN bool_and(p.finished_at IS NOT null) THEN epoch(max(p.finished_at)) END AS ended_s,
    epoch(max(p.last_seen)) AS seen_s,
    sum(p.gpu_request) AS gpus
FROM pod AS p
WHERE
    p.gpu_request > 0 AND p.created_at IS NOT null
    AND p.created_at < $until AND coalesce(p.finished_at, p.last_seen) >= $since
GROUP BY
    p.cluster, p.namespace, p.workload_kind, coalesce(p.workload, p.pod),
    date_trunc('minute', p.created_at)
ORDER BY p.cluster, created_s, gpus
