-- The priorities of the Kueue Workloads that run, as they were listed in the last ten minutes.
SELECT
    cluster,
    namespace,
    workload_kind,
    workload,
    max(priority) AS priority
FROM pending_workload
WHERE
    kind = 'Workload'
    AND state = 'started'
    AND first_seen < $until::TIMESTAMP
    AND last_seen >= $until::TIMESTAMP - INTERVAL 10 MINUTE
GROUP BY cluster, namespace, workload_kind, workload
