-- What was paid for each workload that counted any work.
SELECT
    p.cluster,
    p.team,
    p.namespace,
    p.workload_kind,
    p.workload_name,
    sum(p.usd) AS usd,
    sum(p.gpu_hours) AS gpu_hours
FROM paid AS p
SEMI JOIN counted AS c
    ON
        p.cluster = c.cluster AND p.namespace = c.namespace
        AND p.workload_kind = c.workload_kind AND p.workload_name = c.workload_name
GROUP BY p.cluster, p.team, p.namespace, p.workload_kind, p.workload_name
