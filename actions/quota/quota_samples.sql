-- Hourly guarantee, use and waiting demand of some quotas of one kind, in devices. The waiting
-- demand comes from the objects (KAI, Koordinator, Volcano), else from a ClusterQueue's LocalQueues
-- (split over its flavors by nominal quota), else from the namespace's pods without a node.
WITH rows_of AS (
    SELECT
        ts,
        namespace,
        name,
        kind,
        parent,
        split_part(resource, '@', 1) AS resource,
        resource = $resource AS mine,
        nominal,
        used,
        waiting,
        date_trunc('hour', ts) AS hour
    FROM quota
    WHERE
        cluster = $cluster
        AND ts >= $since::TIMESTAMP
        AND ts < $until::TIMESTAMP
        AND kind IN ($kind, 'LocalQueue')
),

quota_hours AS (
    SELECT
        hour,
        namespace,
        name,
        avg(nominal) AS nominal,
        avg(used) AS used,
        avg(waiting) AS waiting
    FROM rows_of
    WHERE kind = $kind AND mine AND nominal IS NOT null
    GROUP BY ALL
),

parts AS (
    SELECT
        hour,
        name,
        sum(nominal) FILTER (WHERE mine) / nullif(sum(nominal), 0) AS part
    FROM rows_of
    WHERE kind = $kind AND resource = split_part($resource, '@', 1)
    GROUP BY ALL
),

-- A queue without waiting demand has no such row: its other rows show that it was read.
lines AS (
    SELECT
        hour,
        parent AS name,
        coalesce(sum(waiting) FILTER (WHERE resource = split_part($resource, '@', 1)), 0)
        / count(DISTINCT ts) AS waiting
    FROM rows_of
    WHERE kind = 'LocalQueue'
    GROUP BY ALL
),

pods AS (
    SELECT
        namespace,
        gpus,
        created,
        begun,
        ended
    FROM lives
    WHERE cluster = $cluster AND gpu_resource = $resource
),

stretches AS (
    SELECT
        namespace,
        gpus,
        false AS is_running,
        created AS start,
        coalesce(begun, ended) AS "end"
    FROM pods
    UNION ALL BY NAME
    SELECT
        namespace,
        gpus,
        true AS is_running,
        begun AS start,
        ended AS "end"
    FROM pods
    WHERE begun IS NOT null
),

hours AS (
    SELECT DISTINCT hour
    FROM quota_hours
),

by_pods AS (
    SELECT
        h.hour,
        s.namespace,
        sum(
            s.gpus
            * epoch(least(s."end", h.hour + INTERVAL 1 HOUR) - greatest(s.start, h.hour))
            / 3600
        ) FILTER (WHERE NOT s.is_running) AS waiting,
        sum(
            s.gpus
            * epoch(least(s."end", h.hour + INTERVAL 1 HOUR) - greatest(s.start, h.hour))
            / 3600
        ) FILTER (WHERE s.is_running) AS running
    FROM hours AS h
    INNER JOIN stretches AS s ON h.hour + INTERVAL 1 HOUR > s.start AND h.hour < s."end"
    GROUP BY ALL
)

SELECT
    s.hour,
    s.namespace,
    s.name,
    s.nominal,
    CASE WHEN s.namespace <> '' THEN coalesce(s.used, p.running, 0) ELSE s.used END AS used,
    coalesce(
        s.waiting,
        CASE WHEN $kind = 'ClusterQueue' THEN l.waiting * coalesce(q.part, 1) END,
        CASE WHEN s.namespace <> '' THEN coalesce(p.waiting, 0) END
    ) AS waiting
FROM quota_hours AS s
LEFT JOIN parts AS q ON s.hour = q.hour AND s.name = q.name
LEFT JOIN lines AS l ON s.hour = l.hour AND s.name = l.name
LEFT JOIN by_pods AS p ON s.hour = p.hour AND s.namespace = p.namespace
ORDER BY ALL
