-- Workloads of an owner's teams or namespaces, the most expensive first, with their decisions.
WITH owner_use AS (
    SELECT
        cluster,
        workload,
        any_value(team) AS team,
        sum(gpu_hours) AS gpu_hours,
        sum(usd) AS usd,
        coalesce(sum(usd) FILTER (WHERE state = 'idle'), sum(usd) * 0) AS idle_usd,
        coalesce(sum(gpu_hours) FILTER (WHERE state = 'idle'), 0) AS idle_gpu_hours,
        100 * coalesce(sum(gpu_hours) FILTER (WHERE state = 'productive'), 0)
        / sum(gpu_hours) AS productive_pct,
        max(last_bucket) AS last_hour
    FROM paid
    WHERE list_contains($owners, team) OR list_contains($owners, namespace)
    GROUP BY ALL
)

SELECT
    h.cluster,
    h.workload,
    h.team,
    h.gpu_hours,
    h.usd,
    h.idle_usd,
    h.idle_gpu_hours,
    h.productive_pct,
    h.last_hour,
    (SELECT max(last_bucket) FROM paid) AS newest_hour,
    p.says
FROM owner_use AS h
LEFT JOIN coming AS p ON h.cluster = p.cluster AND h.workload = p.subject
ORDER BY h.usd DESC NULLS LAST, h.gpu_hours DESC, h.workload ASC
LIMIT $most
