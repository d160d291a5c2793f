-- Training and batch runs: one per workload of a kind that ends.
SELECT
    p.cluster,
    p.team,
    p.namespace || '/' || p.workload_kind || '/' || p.workload_name AS workload,
    min(p.first_bucket) AS began,
    max(p.last_bucket) AS last_hour,
    sum(p.gpu_hours) AS gpu_hours,
    coalesce(sum(p.gpu_hours) FILTER (WHERE p.state = 'productive'), 0) AS productive_gpu_hours,
    sum(p.usd) AS usd
FROM paid AS p
WHERE list_contains($kinds, p.workload_kind)
GROUP BY p.cluster, p.team, p.namespace, p.workload_kind, p.workload_name
ORDER BY usd DESC NULLS LAST, gpu_hours DESC, workload ASC
