-- The cost of served work.
SELECT
    s.cluster,
    s.team,
    s.namespace || '/' || s.workload_kind || '/' || s.workload_name AS workload,
    s.gpu_hours,
    s.usd,
    c.requests,
    c.tokens,
    CASE WHEN c.requests >= $least THEN 1e6 * s.usd::DOUBLE / c.requests END
        AS usd_per_million_requests,
    CASE WHEN c.tokens >= $least THEN 1e6 * s.usd::DOUBLE / c.tokens END AS usd_per_million_tokens
FROM counted AS c
INNER JOIN unit_costs AS s
    ON
        c.cluster = s.cluster AND c.namespace = s.namespace
        AND c.workload_kind = s.workload_kind AND c.workload_name = s.workload_name
ORDER BY s.usd DESC NULLS LAST, workload ASC
