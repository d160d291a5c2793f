-- What quotas of GPUs said, on the mean of each hour, by object and flavor. Quotas of
-- MIG instances are not among them: those count instances.
WITH gpus AS (
    SELECT 'nvidia.com/gpu' AS resource
    UNION
    SELECT gpu_resource FROM node
    UNION
    SELECT gpu_resource FROM pod
),

wanted AS (
    SELECT DISTINCT
        quota.resource AS raw,
        split_part(quota.resource, '@', 1) AS resource,
        split_part(quota.resource, '@', 2) AS flavor,
        split_part(quota.resource, '@', 1) IN (SELECT gpus.resource FROM gpus)
        AND quota.resource NOT LIKE '%/mig-%' AS is_gpu
    FROM quota
    WHERE quota.ts >= $since::TIMESTAMP AND quota.ts < $until::TIMESTAMP
),

gpu_rows AS (
    SELECT raw
    FROM wanted
    WHERE is_gpu
),

looks AS (
    SELECT
        cluster,
        kind,
        namespace,
        name,
        resource AS raw,
        date_trunc('hour', ts) AS hour,
        avg(nominal) AS nominal,
        CASE WHEN count("limit") = count(*) THEN avg("limit") END AS "limit",
        avg(used) AS used,
        sum(waiting) AS waiting,
        count(*) AS rows_seen,
        max(parent) AS parent
    FROM quota
    WHERE
        ts >= $since::TIMESTAMP
        AND ts < $until::TIMESTAMP
        AND (kind = 'LocalQueue' OR resource IN (SELECT g.raw FROM gpu_rows AS g))
    GROUP BY ALL
),

-- Where nothing waits there may be no row: the object's other rows tell how often it was seen.
evened AS (
    SELECT
        * EXCLUDE (waiting, rows_seen),
        waiting / max(rows_seen) OVER (PARTITION BY cluster, kind, namespace, name, hour) AS waiting
    FROM looks
)

SELECT
    evened.* EXCLUDE (raw),
    wanted.resource,
    wanted.flavor
FROM evened
INNER JOIN wanted ON evened.raw = wanted.raw
WHERE wanted.is_gpu
ORDER BY ALL
