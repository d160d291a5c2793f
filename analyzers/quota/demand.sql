-- GPUs, cores and bytes that pods held, and GPUs they waited for, on the mean of each hour, by
-- namespace, queue and MIG profile (empty = whole GPUs). A pod that the last look at its cluster
-- still saw lives to the end.
WITH looked AS (
    SELECT
        cluster,
        max(last_seen) AS last_look
    FROM pod
    GROUP BY cluster
),

lives AS (
    SELECT
        p.cluster,
        p.namespace,
        coalesce(p.queue, '') AS queue,
        regexp_extract(coalesce(p.gpu_resource, ''), '/mig-(.*)$', 1) AS profile,
        p.gpu_request,
        coalesce(p.cpu_request_milli, 0) / 1000 AS cpu,
        coalesce(p.memory_request_bytes, 0) AS memory,
        coalesce(p.created_at, p.scheduled_at, p.first_seen) AS created,
        coalesce(
            p.scheduled_at, p.started_at, CASE WHEN p.node IS NOT null THEN p.first_seen END
        ) AS begun,
        coalesce(
            p.finished_at,
            CASE
                WHEN p.last_seen >= l.last_look - INTERVAL 10 MINUTE THEN $until::TIMESTAMP
                ELSE p.last_seen
            END
        ) AS ended
    FROM pod AS p
    INNER JOIN looked AS l ON p.cluster = l.cluster
    WHERE p.gpu_request > 0
),

-- One row per pod and stretch: waiting (held = 0) until it was placed, held from then on.
stretches AS (
    SELECT
        cluster,
        namespace,
        queue,
        profile,
        0 AS held,
        gpu_request AS gpus,
        0 AS cpu,
        0 AS memory,
        greatest(created, $since::TIMESTAMP) AS start,
        least(coalesce(begun, ended), $until::TIMESTAMP) AS "end"
    FROM lives
    UNION ALL
    SELECT
        cluster,
        namespace,
        queue,
        profile,
        1 AS held,
        gpu_request AS gpus,
        cpu,
        memory,
        greatest(begun, $since::TIMESTAMP) AS start,
        least(ended, $until::TIMESTAMP) AS "end"
    FROM lives
    WHERE begun IS NOT null
),

-- Changes instead of hours of pods: what begins in an hour, for its part of that hour, and what
-- goes on in every later one.
edges AS (
    SELECT
        cluster,
        namespace,
        queue,
        profile,
        held,
        gpus,
        cpu,
        memory,
        start AS moment,
        1 AS sign
    FROM stretches
    WHERE start < "end"
    UNION ALL
    SELECT
        cluster,
        namespace,
        queue,
        profile,
        held,
        gpus,
        cpu,
        memory,
        "end" AS moment,
        -1 AS sign
    FROM stretches
    WHERE start < "end"
),

parts AS (
    SELECT
        *,
        epoch(moment - date_trunc('hour', moment)) / 3600 AS part
    FROM edges
)

SELECT
    cluster,
    namespace,
    queue,
    profile,
    held::BOOLEAN AS held,
    date_trunc('hour', moment) AS hour,
    sum(sign * gpus) AS gpus,
    sum(sign * cpu) AS cpu,
    sum(sign * memory) AS memory,
    sum(sign * gpus * (1 - part)) AS gpus_first,
    sum(sign * cpu * (1 - part)) AS cpu_first,
    sum(sign * memory * (1 - part)) AS memory_first
FROM parts
GROUP BY ALL
ORDER BY ALL
