-- What the ledger charged for the GPU-hours that a finding's advice claims.
WITH claims AS (
    SELECT
        unnest($claims::INTEGER[]) AS claim,
        unnest($clusters::VARCHAR[]) AS cluster,
        unnest($namespaces::VARCHAR[]) AS namespace,
        unnest($kinds::VARCHAR[]) AS workload_kind,
        unnest($workloads::VARCHAR[]) AS workload,
        unnest($pools::VARCHAR[]) AS pool,
        unnest($nodes::VARCHAR[]) AS node,
        unnest($models::VARCHAR[]) AS model,
        unnest($states::VARCHAR[]) AS state
)

SELECT
    a.claim,
    l.state,
    l.pool,
    l.model,
    round(sum(l.gpu_seconds) / 3600.0, 3) AS gpu_hours,
    sum(l.usd) AS usd,
    sum(l.usd) / nullif(sum(l.gpu_seconds), 0) * 3600 AS usd_per_gpu_hour,
    max(l.price_as_of) AS price_as_of
FROM claims AS a
INNER JOIN ledger AS l
    ON
        a.cluster = l.cluster
        AND (
            a.state = l.state
            OR (a.state IN ('free', 'stranded') AND l.state IN ('free', 'stranded'))
        )
        AND (a.namespace IS NULL OR a.namespace = l.namespace)
        AND (a.workload_kind IS NULL OR a.workload_kind = l.workload_kind)
        AND (a.workload IS NULL OR a.workload = l.workload)
        AND (a.pool IS NULL OR a.pool = l.pool)
        AND (a.node IS NULL OR a.node = l.node)
        AND (a.model IS NULL OR a.model = l.model)
WHERE
    l.bucket >= date_trunc('hour', $since::TIMESTAMP)
    AND l.bucket < $until::TIMESTAMP
GROUP BY a.claim, l.state, l.pool, l.model
ORDER BY a.claim, l.state, l.pool, l.model
