-- The loss of each failure of a window, as the ledger counts it: one row per failure.
SELECT
    cluster,
    namespace,
    workload_kind,
    workload,
    "end" AS failed_at,
    sum(gpu_hours) AS gpu_hours,
    bool_and(basis = 'measured') AS measured
FROM work_lost
WHERE "end" >= $since AND "end" < $until
GROUP BY cluster, namespace, workload_kind, workload, "end"
