-- What workloads spent and wasted during the requested stretches, each of a team or a namespace.
WITH spans AS (
    SELECT
        unnest($spans::BIGINT[]) AS span,
        unnest($clusters::VARCHAR[]) AS cluster,
        unnest($teams::VARCHAR[]) AS team,
        unnest($namespaces::VARCHAR[]) AS namespace,
        unnest($starts::TIMESTAMP[]) AS since,
        unnest($ends::TIMESTAMP[]) AS until
),

ledger_rows AS (
    SELECT
        s.span,
        l.*
    FROM ledger AS l
    INNER JOIN spans AS s ON l.cluster = s.cluster AND l.team = s.team
    WHERE
        l.bucket >= $since AND l.bucket < $until
        AND l.namespace <> '' AND l.bucket >= s.since AND l.bucket < s.until
    UNION ALL BY NAME
    SELECT
        s.span,
        l.*
    FROM ledger AS l
    INNER JOIN spans AS s ON l.cluster = s.cluster AND l.namespace = s.namespace
    WHERE
        l.bucket >= $since AND l.bucket < $until
        AND l.namespace <> '' AND l.bucket >= s.since AND l.bucket < s.until
)

SELECT
    span,
    namespace,
    workload_kind,
    workload,
    sum(gpu_seconds) / 3600 AS gpu_hours,
    sum(usd) AS usd,
    coalesce(sum(gpu_seconds) FILTER (WHERE state = 'idle'), 0) / 3600 AS idle,
    sum(usd) FILTER (WHERE state = 'idle') AS idle_usd,
    coalesce(sum(gpu_seconds) FILTER (WHERE state = 'lost'), 0) / 3600 AS lost,
    sum(usd) FILTER (WHERE state = 'lost') AS lost_usd
FROM ledger_rows
GROUP BY ALL
ORDER BY span ASC, gpu_hours DESC, namespace ASC, workload_kind ASC, workload ASC
