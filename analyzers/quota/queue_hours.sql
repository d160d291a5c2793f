-- GPU-hours by hour: allocated and idle per namespace and queue, and free; MIG instances by their
-- profile (empty = whole GPUs).
WITH owners AS (
    SELECT
        cluster,
        namespace,
        workload_kind,
        workload,
        max(queue) AS queue
    FROM pod
    WHERE queue IS NOT null
    GROUP BY ALL
),

-- A namespace of one queue needs no join with its workloads.
spaces AS (
    SELECT
        cluster,
        namespace,
        CASE WHEN count(DISTINCT queue) = 1 THEN max(queue) END AS queue
    FROM owners
    GROUP BY ALL
),

cut AS (
    SELECT
        cluster,
        device,
        replace(profile, '+', '.') AS profile
    FROM device
    WHERE coalesce(profile, '') <> ''
),

hours AS (
    SELECT
        l.cluster,
        coalesce(c.profile, '') AS profile,
        date_trunc('hour', l.bucket) AS hour,
        l.namespace,
        CASE WHEN s.namespace IS NOT null AND s.queue IS null THEN l.workload_kind END AS kind,
        CASE WHEN s.namespace IS NOT null AND s.queue IS null THEN l.workload END AS workload,
        any_value(s.queue) AS queue,
        coalesce(sum(l.gpu_seconds) FILTER (WHERE l.state = 'idle'), 0) AS idle,
        coalesce(sum(l.gpu_seconds) FILTER (WHERE l.state <> 'idle'), 0) AS free,
        sum(l.usd) FILTER (WHERE l.state = 'idle') AS idle_usd,
        sum(l.usd) FILTER (WHERE l.state <> 'idle') AS free_usd,
        coalesce(sum(l.gpu_seconds) FILTER (WHERE NOT l.priced), 0) AS unpriced
    FROM ledger AS l
    LEFT JOIN spaces AS s ON l.cluster = s.cluster AND l.namespace = s.namespace
    LEFT JOIN cut AS c ON l.cluster = c.cluster AND l.device = c.device
    WHERE
        l.bucket >= date_trunc('hour', $since::TIMESTAMP)
        AND l.bucket < $until::TIMESTAMP
        AND l.state IN ('idle', 'free', 'stranded')
    GROUP BY ALL
)

SELECT
    h.cluster,
    h.hour,
    h.namespace,
    coalesce(h.queue, o.queue, '') AS queue,
    h.profile,
    sum(h.idle) / 3600 AS idle,
    sum(h.free) / 3600 AS free,
    sum(h.idle_usd) AS idle_usd,
    sum(h.free_usd) AS free_usd,
    sum(h.unpriced) / 3600 AS unpriced
FROM hours AS h
LEFT JOIN owners AS o
    ON
        h.cluster = o.cluster
        AND h.namespace = o.namespace
        AND h.kind = o.workload_kind
        AND h.workload = o.workload
GROUP BY ALL
ORDER BY ALL
