-- The cost of training work.
SELECT
    s.cluster,
    s.team,
    s.namespace || '/' || s.workload_kind || '/' || s.workload_name AS workload,
    c.work,
    c.amount,
    s.gpu_hours,
    s.usd,
    CASE WHEN c.amount >= $least THEN 1e6 * s.usd::DOUBLE / c.amount END AS usd_per_million
FROM counted AS c
INNER JOIN unit_costs AS s
    ON
        c.cluster = s.cluster AND c.namespace = s.namespace
        AND c.workload_kind = s.workload_kind AND c.workload_name = s.workload_name
WHERE c.amount > 0
ORDER BY s.usd DESC NULLS LAST, workload ASC, c.work ASC
