-- GPU-hours by hour: allocated and idle per namespace and queue, and free; MIG instances by their
-- profile (empty = whole GPUs). An hour is of the queue in which the workload's pods were then.
WITH owners AS (
    SELECT
        p.cluster,
        p.namespace,
        p.workload_kind,
        p.workload,
        if(e.id IS null, p.queue, e.value) AS queue,
        greatest(
            coalesce(e.holds_from, '-infinity'),
            coalesce(p.created_at, p.scheduled_at, p.started_at, p.first_seen)
        ) AS from_at,
        least(
            coalesce(e.holds_to, 'infinity'), coalesce(p.finished_at, p.deleted_at, p.last_seen)
        ) AS to_at
    FROM pod AS p
    LEFT JOIN value_eras AS e
        ON e.kind = 'pod.queue' AND p.cluster = e.cluster AND p.uid = e.id
    WHERE if(e.id IS null, p.queue, e.value) IS NOT null
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
),

-- A pod that is still in the inventory may have more hours than it was seen.
owner_hours AS (
    SELECT
        h.cluster,
        h.namespace,
        h.kind,
        h.workload,
        h.hour,
        arg_max(
            o.queue,
            (
                greatest(
                    epoch(least(h.hour + INTERVAL 1 HOUR, o.to_at))
                    - epoch(greatest(h.hour, o.from_at)),
                    0
                ),
                o.to_at,
                o.queue
            )
        ) AS queue
    FROM (
        SELECT DISTINCT
            cluster,
            namespace,
            kind,
            workload,
            hour
        FROM hours
        WHERE workload IS NOT null
    ) AS h
    INNER JOIN owners AS o
        ON
            h.cluster = o.cluster AND h.namespace = o.namespace
            AND h.kind = o.workload_kind AND h.workload = o.workload
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
LEFT JOIN owner_hours AS o
    ON
        h.cluster = o.cluster
        AND h.namespace = o.namespace
        AND h.kind = o.kind
        AND h.workload = o.workload
        AND h.hour = o.hour
GROUP BY ALL
ORDER BY ALL
