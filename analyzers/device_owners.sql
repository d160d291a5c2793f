-- The owner of each pod that had a device allocated in the window.
SELECT
    cluster,
    namespace,
    pod,
    max_by(workload_kind, start) AS workload_kind,
    max_by(workload, start) AS workload,
    max_by(team, start) AS team
FROM allocation
WHERE start < $until AND "end" > $since
GROUP BY cluster, namespace, pod
