-- The hours allocated to workloads and used, by what the node was in them (location and capacity
-- type): the hours that could be bought at other terms. Idle hours belong to the idle analyzer.
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
    sum(u.gpu_seconds) / 3600 AS gpu_hours,
    sum(u.usd) AS usd,
    bool_and(u.priced) AS priced,
    max(u.team) AS team
FROM ledger AS u
LEFT JOIN node_eras AS n
    ON
        u.cluster = n.cluster AND u.node = n.node
        AND u.bucket >= n.holds_from AND u.bucket < n.holds_to
WHERE
    u.bucket >= $since
    AND u.bucket < $until
    AND u.namespace <> ''
    AND u.state IN ('productive', 'low')
GROUP BY ALL
ORDER BY ALL
