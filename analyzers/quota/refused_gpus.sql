-- GPUs of pods that a ResourceQuota refused, as hourly means, by quota and resource: one pod's
-- request of each owner. Controllers retry after 1000 s at the latest. So a refusal lasts until the
-- owner's next one, until a pod of the owner was created, or for that time.
WITH refusal_events AS (
    SELECT
        cluster,
        namespace,
        kind,
        name AS owner,
        ts,
        regexp_extract(message, 'exceeded quota: ([^,]+),', 1) AS name,
        unnest(
            regexp_extract_all(
                regexp_extract(message, 'requested: (.*?), used:', 1),
                'requests\.[^=,]+=[0-9.]+[a-zA-Z]*'
            )
        ) AS item
    FROM event
    WHERE
        ts >= $since::TIMESTAMP - INTERVAL 1 HOUR
        AND ts < $until::TIMESTAMP
        AND reason IN ('FailedCreate', 'FailedCreatePod')
        AND contains(message, 'exceeded quota: ')
),

gpus AS (
    SELECT 'nvidia.com/gpu' AS resource
    UNION
    SELECT gpu_resource FROM node
    UNION
    SELECT gpu_resource FROM pod
),

refusals AS (
    SELECT
        * EXCLUDE (item),
        regexp_extract(item, 'requests\.([^=]+)=', 1) AS resource,
        try_cast(regexp_extract(item, '=([0-9.]+)$', 1) AS DOUBLE)
        * coalesce(try_cast(regexp_extract(item, '/mig-([0-9]+)g', 1) AS INTEGER) / 7, 1) AS gpus,
        lead(ts) OVER (
            PARTITION BY cluster, namespace, kind, owner, name, item ORDER BY ts
        ) AS again
    FROM refusal_events
),

waits AS (
    SELECT
        r.cluster,
        r.namespace,
        r.name,
        r.resource,
        r.gpus,
        greatest(r.ts, $since::TIMESTAMP) AS start,
        least(
            coalesce(r.again, r.ts + INTERVAL 1000 SECOND),
            r.ts + INTERVAL 1000 SECOND,
            coalesce(p.created_at, $until::TIMESTAMP),
            $until::TIMESTAMP
        ) AS "end"
    FROM refusals AS r
    ASOF LEFT JOIN pod AS p
        ON
            r.cluster = p.cluster
            AND r.namespace = p.namespace
            AND r.kind = p.owner_kind
            AND r.owner = p.owner_name
            AND r.ts < p.created_at
    WHERE
        r.gpus > 0
        AND (r.resource IN (SELECT g.resource FROM gpus AS g) OR r.resource LIKE '%/mig-%')
),

hours AS (
    SELECT
        *,
        unnest(generate_series(date_trunc('hour', start), "end", INTERVAL 1 HOUR)) AS hour
    FROM waits
    WHERE start < "end"
)

SELECT
    cluster,
    namespace,
    name,
    resource,
    hour,
    sum(
        gpus * epoch(least("end", hour + INTERVAL 1 HOUR) - greatest(start, hour)) / 3600
    ) AS gpus
FROM hours
GROUP BY ALL
ORDER BY ALL
