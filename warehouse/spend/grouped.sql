-- The ledger's lines by the requested names. The platform owns unallocated time, under a name that
-- no namespace or team can have.
WITH named AS (
    SELECT
        l.cluster AS bill,
        l.namespace <> '' AS owned,
        l.cluster,
        CASE WHEN l.namespace = '' THEN '(platform)' ELSE l.namespace END AS namespace,
        CASE
            WHEN l.namespace = '' THEN '(platform)' ELSE coalesce(l.team, l.namespace)
        END AS team,
        CASE
            WHEN l.namespace = '' THEN '(platform)'
            ELSE l.namespace || '/' || l.workload_kind || '/' || l.workload
        END AS workload,
        coalesce(l.model, '(unknown)') AS model,
        coalesce(l.pool, '(none)') AS pool,
        coalesce(l.node, '(unknown)') AS node,
        l.state,
        l.gpu_seconds / 3600 AS gpu_hours,
        CASE WHEN $view = 'gpu' THEN l.usd_gpu ELSE l.usd END AS usd,
        l.measured_gpu_seconds / 3600 AS measured_gpu_hours,
        l.effective_gpu_seconds / 3600 AS effective_gpu_hours,
        l.estimated,
        l.price_as_of
    FROM ledger_lines AS l
    WHERE $cluster IS null OR l.cluster = $cluster
)

SELECT
    bill,
    owned,
    CASE WHEN list_contains($by, 'cluster') THEN cluster END AS cluster,
    CASE WHEN list_contains($by, 'namespace') THEN namespace END AS namespace,
    CASE WHEN list_contains($by, 'team') OR $team IS NOT null THEN team END AS team,
    CASE WHEN list_contains($by, 'workload') THEN workload END AS workload,
    CASE WHEN list_contains($by, 'model') THEN model END AS model,
    CASE WHEN list_contains($by, 'pool') THEN pool END AS pool,
    CASE WHEN list_contains($by, 'node') THEN node END AS node,
    CASE WHEN list_contains($by, 'state') THEN state END AS state,
    sum(gpu_hours) AS gpu_hours,
    sum(usd) AS usd,
    coalesce(sum(gpu_hours) FILTER (WHERE state = 'idle'), 0) AS idle_gpu_hours,
    coalesce(sum(usd) FILTER (WHERE state = 'idle'), sum(usd) * 0) AS idle_usd,
    coalesce(sum(gpu_hours) FILTER (WHERE state = 'unknown'), 0) AS unknown_gpu_hours,
    coalesce(sum(gpu_hours) FILTER (WHERE usd IS null), 0) AS unpriced_gpu_hours,
    coalesce(sum(gpu_hours) FILTER (WHERE estimated), 0) AS estimated_gpu_hours,
    sum(usd) FILTER (WHERE estimated) AS estimated_usd,
    coalesce(
        sum(gpu_hours) FILTER (
            WHERE owned AND state IN ('idle', 'low', 'productive', 'lost', 'startup')
        ),
        0
    ) AS known_gpu_hours,
    coalesce(
        sum(gpu_hours) FILTER (WHERE owned AND state IN ('low', 'productive', 'lost')), 0
    ) AS busy_gpu_hours,
    sum(effective_gpu_hours) AS effective_gpu_hours,
    coalesce(sum(measured_gpu_hours), 0) AS measured_gpu_hours,
    max(price_as_of) AS price_as_of
FROM named
GROUP BY ALL
