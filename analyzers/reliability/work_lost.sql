-- The loss of each failure of a window, as the ledger counts it: one row per failure.
SELECT
    cluster,
    namespace,
    workload_kind,
    workload,
    "end" AS failed_at,
    sum(lost) AS gpu_hours,
    CASE WHEN count(recovering) = count(*) THEN sum(recovering) END AS recovering,
    sum(lost * 3600 / epoch("end" - start)) AS gpus,
    bool_and(basis = 'measured') AS measured
FROM work_lost
WHERE "end" >= $since AND "end" < $until
GROUP BY cluster, namespace, workload_kind, workload, "end"
