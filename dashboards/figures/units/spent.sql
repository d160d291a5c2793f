-- What each workload was paid for.
SELECT
    cluster,
    team,
    namespace || '/' || workload_kind || '/' || workload_name AS workload,
    sum(usd) AS usd,
    sum(gpu_hours) AS gpu_hours
FROM paid
GROUP BY cluster, team, namespace, workload_kind, workload_name
