-- Requests of pods that requested GPUs and had no node at each time, with the number of pods. A pod
-- that the last poll of its cluster listed without a node still waits. The pods of a `still`
-- cluster are read once: a Pending pod there waits.
WITH times AS (
    SELECT
        unnest($clusters) AS cluster,
        unnest($nths) AS nth,
        unnest($times)::TIMESTAMP AS at,
        unnest($stills) AS still
),

waits AS (
    SELECT
        p.cluster,
        p.gpu_request AS request,
        CASE
            WHEN p.gpu_core_request_pct > 0 AND p.gpu_core_request_pct < 100
                THEN greatest(1, round(p.gpu_request * 100 / p.gpu_core_request_pct))
            ELSE ceil(p.gpu_request)
        END::INTEGER AS gpus,
        coalesce(p.cpu_request_milli, 0) AS cpu_milli,
        coalesce(p.memory_request_bytes, 0) AS memory_bytes,
        CASE
            WHEN p.gpu_resource LIKE '%mig-%' THEN split_part(p.gpu_resource, 'mig-', 2)
        END AS profile,
        coalesce(
            p.labels ->> '$.gpu_spec',
            replace(p.annotations ->> '$."nvidia.com/use-gputype"', ',', '|')
        ) AS models,
        p.annotations ->> '$."fallow.selector"' AS selector,
        p.annotations ->> '$."fallow.node-affinity"' AS affinity,
        p.annotations ->> '$."fallow.tolerations"' AS tolerations,
        p.node IS null AS unscheduled,
        coalesce(p.created_at, p.first_seen) AS from_at,
        CASE
            WHEN p.node IS NOT null THEN coalesce(p.scheduled_at, p.started_at)
            WHEN p.finished_at IS NOT null THEN p.finished_at
            WHEN p.last_seen >= l.last_list - INTERVAL 10 MINUTE THEN 'infinity'::TIMESTAMP
            ELSE p.last_seen
        END AS to_at
    FROM pod AS p
    INNER JOIN last_lists AS l ON p.cluster = l.cluster
    WHERE
        p.gpu_request > 0
        AND p.cluster IN (SELECT unnest($clusters))
        AND (p.node IS NOT null OR p.phase = 'Pending')
)

SELECT
    w.cluster,
    m.nth,
    w.gpus,
    round(1000 * w.request / w.gpus)::INTEGER AS gpu_milli,
    w.cpu_milli,
    w.memory_bytes,
    w.profile,
    w.models,
    w.selector,
    w.affinity,
    w.tolerations,
    count(*) AS pods
FROM times AS m
INNER JOIN waits AS w
    ON
        m.cluster = w.cluster
        AND (
            m.still AND w.unscheduled
            OR NOT m.still AND m.at >= w.from_at AND m.at < w.to_at
        )
GROUP BY ALL
ORDER BY ALL
