-- The hours allocated to workloads and used, by location and capacity type: the hours that could be
-- bought at other terms. Idle hours belong to the idle analyzer.
WITH used AS (
    SELECT
        cluster,
        namespace,
        workload_kind,
        workload,
        node,
        pool,
        model,
        state,
        sum(gpu_seconds) / 3600 AS gpu_hours,
        sum(usd) AS usd,
        bool_and(priced) AS priced,
        max(team) AS team
    FROM ledger
    WHERE
        bucket >= $since
        AND bucket < $until
        AND namespace <> ''
        AND state IN ('productive', 'low')
    GROUP BY ALL
)

SELECT
    u.cluster,
    u.namespace,
    u.workload_kind,
    u.workload,
    u.pool,
    u.model,
    u.state,
    n.provider,
    n.region,
    n.instance_type,
    coalesce(n.capacity_type, 'unknown') AS capacity_type,
    sum(u.gpu_hours) AS gpu_hours,
    sum(u.usd) AS usd,
    bool_and(u.priced) AS priced,
    max(u.team) AS team
FROM used AS u
LEFT JOIN node AS n ON u.cluster = n.cluster AND u.node = n.node
GROUP BY ALL
ORDER BY ALL
