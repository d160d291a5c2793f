-- Quotas of GPUs and the queues that lead to them, as they were last read in the window: a key that
-- an object no longer had then is none. Kueue's flavors of one resource are added up; `versions`
-- counts the values of the nominal quota.
WITH of_window AS (
    SELECT
        *,
        split_part(resource, '@', 1) = 'nvidia.com/gpu'
        OR split_part(resource, '@', 1) IN (SELECT gpu_resource FROM node) AS is_gpu,
        max(ts) OVER (PARTITION BY cluster, kind, namespace, name) AS last_read,
        count(DISTINCT nominal) OVER (
            PARTITION BY cluster, kind, namespace, name, resource
        ) AS versions
    FROM quota
    WHERE
        ts >= $since::TIMESTAMP
        AND ts < $until::TIMESTAMP
        AND ($cluster::VARCHAR IS null OR cluster = $cluster)
)

SELECT
    cluster,
    kind,
    coalesce(namespace, '') AS namespace,
    name,
    sum(nominal) FILTER (is_gpu)::DOUBLE AS nominal,
    CASE
        WHEN count("limit") FILTER (is_gpu) = count(*) FILTER (is_gpu)
            THEN sum("limit") FILTER (is_gpu)::DOUBLE
    END AS "limit",
    CASE
        WHEN count(lending) FILTER (is_gpu) = count(*) FILTER (is_gpu)
            THEN sum(lending) FILTER (is_gpu)::DOUBLE
    END AS lending,
    coalesce(max(parent), '') AS parent,
    max(versions)::INTEGER AS versions
FROM of_window
WHERE
    ts = last_read
    AND (is_gpu OR kind IN ('LocalQueue', 'Cohort'))
GROUP BY cluster, kind, namespace, name
ORDER BY ALL
