-- How much of their guaranteed GPUs quotas and queues held when they were last read, within the
-- hour before a given time. MIG instances are converted to GPUs, with 7 slices each.
WITH gpus AS (
    SELECT 'nvidia.com/gpu' AS resource
    UNION
    SELECT gpu_resource FROM node
    UNION
    SELECT gpu_resource FROM pod
),

last_seen AS (
    SELECT
        cluster,
        kind,
        namespace,
        name,
        nominal,
        used,
        parent,
        split_part(resource, '@', 1) AS device_resource
    FROM quota
    WHERE ts <= $until::TIMESTAMP AND ts > $until::TIMESTAMP - INTERVAL 1 HOUR
    QUALIFY ts = max(ts) OVER (PARTITION BY cluster, kind, namespace, name)
),

measured AS (
    SELECT
        *,
        device_resource IN (SELECT gpus.resource FROM gpus)
        OR device_resource LIKE '%/mig-%' AS is_gpu,
        coalesce(
            try_cast(regexp_extract(device_resource, '/mig-([0-9]+)g', 1) AS INTEGER) / 7, 1
        ) AS unit
    FROM last_seen
)

SELECT
    cluster,
    kind,
    namespace,
    name,
    max(parent) AS parent,
    CASE
        WHEN count(*) FILTER (WHERE is_gpu AND (nominal IS NULL OR used IS NULL)) = 0
            THEN sum((used - nominal) * unit) FILTER (WHERE is_gpu) > 0.000001
    END AS over
FROM measured
GROUP BY cluster, kind, namespace, name
ORDER BY cluster, kind, namespace, name
