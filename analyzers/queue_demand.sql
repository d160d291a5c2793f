-- GPUs, cores and bytes of placed pods, and GPUs that pods waited for, as hourly means, by
-- namespace, queue and MIG profile (empty = whole GPUs). The pods' lifetimes are in
-- inventory/lives.sql.
WITH pods AS (
    SELECT
        cluster,
        namespace,
        coalesce(queue, '') AS queue,
        regexp_extract(coalesce(gpu_resource, ''), '/mig-(.*)$', 1) AS profile,
        gpus,
        coalesce(cpu_request_milli, 0) / 1000 AS cpu,
        coalesce(memory_request_bytes, 0) AS memory,
        created,
        begun,
        ended
    FROM lives
),

-- One row per pod and stretch: waiting (placed = 0) until it was placed, placed = 1 from then on.
stretches AS (
    SELECT
        cluster,
        namespace,
        queue,
        profile,
        0 AS placed,
        gpus,
        0 AS cpu,
        0 AS memory,
        greatest(created, $since::TIMESTAMP) AS start,
        least(coalesce(begun, ended), $until::TIMESTAMP) AS "end"
    FROM pods
    UNION ALL BY NAME
    SELECT
        cluster,
        namespace,
        queue,
        profile,
        1 AS placed,
        gpus,
        cpu,
        memory,
        greatest(begun, $since::TIMESTAMP) AS start,
        least(ended, $until::TIMESTAMP) AS "end"
    FROM pods
    WHERE begun IS NOT null
),

-- Changes instead of hours of pods: a change counts for its part of its hour, and fully in every
-- later hour.
edges AS (
    SELECT
        cluster,
        namespace,
        queue,
        profile,
        placed,
        gpus,
        cpu,
        memory,
        start AS edge_at,
        1 AS sign
    FROM stretches
    WHERE start < "end"
    UNION ALL BY NAME
    SELECT
        cluster,
        namespace,
        queue,
        profile,
        placed,
        gpus,
        cpu,
        memory,
        "end" AS edge_at,
        -1 AS sign
    FROM stretches
    WHERE start < "end"
),

parts AS (
    SELECT
        *,
        epoch(edge_at - date_trunc('hour', edge_at)) / 3600 AS part
    FROM edges
)

SELECT
    cluster,
    namespace,
    queue,
    profile,
    placed::BOOLEAN AS placed,
    date_trunc('hour', edge_at) AS hour,
    sum(sign * gpus) AS gpus,
    sum(sign * cpu) AS cpu,
    sum(sign * memory) AS memory,
    sum(sign * gpus * (1 - part)) AS gpus_first,
    sum(sign * cpu * (1 - part)) AS cpu_first,
    sum(sign * memory * (1 - part)) AS memory_first
FROM parts
GROUP BY ALL
ORDER BY ALL
