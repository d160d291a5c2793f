-- Figures of quotas of GPUs, as hourly means, by object and flavor. Quotas of MIG instances count
-- instances: here they are converted to GPUs, with 7 slices each.
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
        OR quota.resource LIKE '%/mig-%' AS is_gpu,
        coalesce(
            try_cast(regexp_extract(quota.resource, '/mig-([0-9]+)g', 1) AS INTEGER) / 7, 1
        ) AS unit
    FROM quota
    WHERE quota.ts >= $since::TIMESTAMP AND quota.ts < $until::TIMESTAMP
),

gpu_rows AS (
    SELECT raw
    FROM wanted
    WHERE is_gpu
),

hourly AS (
    SELECT
        cluster,
        kind,
        namespace,
        name,
        resource AS raw,
        date_trunc('hour', ts) AS hour,
        avg(nominal) AS nominal,
        CASE WHEN count("limit") = count(*) THEN avg("limit") END AS "limit",
        CASE WHEN count(lending) = count(*) THEN avg(lending) END AS lending,
        avg(used) AS used,
        sum(waiting) AS waiting,
        count(*) AS rows_seen,
        max(parent) AS parent
    FROM quota
    WHERE
        ts >= $since::TIMESTAMP
        AND ts < $until::TIMESTAMP
        AND (kind IN ('LocalQueue', 'Cohort') OR resource IN (SELECT g.raw FROM gpu_rows AS g))
    GROUP BY ALL
),

-- Without waiting demand there may be no row: the object's other rows show how often it was read.
evened AS (
    SELECT
        * EXCLUDE (waiting, rows_seen),
        waiting / max(rows_seen) OVER (PARTITION BY cluster, kind, namespace, name, hour) AS waiting
    FROM hourly
)

SELECT
    evened.* EXCLUDE (raw)
    REPLACE (
        nominal * unit AS nominal,
        "limit" * unit AS "limit",
        lending * unit AS lending,
        used * unit AS used,
        waiting * unit AS waiting
    ),
    wanted.resource,
    wanted.flavor
FROM evened
INNER JOIN wanted ON evened.raw = wanted.raw
WHERE wanted.is_gpu OR evened.kind = 'Cohort'
ORDER BY ALL
