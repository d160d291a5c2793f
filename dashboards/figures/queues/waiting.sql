-- What waits for GPUs at the end of the window, by workload, the most GPUs times hours first.
SELECT
    a.cluster,
    a.team,
    a.workload,
    any_value(a.queue) AS queue,
    any_value(a.priority) AS priority,
    count(*) AS pods,
    sum(a.gpus) AS gpus,
    min(a.created_at) AS since,
    max(epoch($until::TIMESTAMP - a.created_at)) / 3600 AS hours,
    sum(a.gpus * epoch($until::TIMESTAMP - a.created_at)) / 3600 AS gpu_hours,
    any_value(r.message) AS message
FROM gpu_requests AS a
LEFT JOIN refused AS r
    ON a.cluster = r.cluster AND a.namespace = r.namespace AND a.pod = r.pod
WHERE a.waited_until IS null OR a.waited_until >= $until
GROUP BY a.cluster, a.team, a.workload
ORDER BY gpu_hours DESC, a.workload ASC
LIMIT $most
