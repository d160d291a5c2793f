-- Quotas of GPUs and the queues that lead to them, as they were last read in the window: a key that
-- an object no longer had then is none. Kueue's flavors of one resource are added up; `versions`
-- counts the values of the nominal quota.
WITH of_window AS (
    SELECT
        *,
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
    sum(nominal)::DOUBLE AS nominal,
    CASE WHEN count("limit") = count(*) THEN sum("limit")::DOUBLE END AS "limit",
    CASE WHEN count(lending) = count(*) THEN sum(lending)::DOUBLE END AS lending,
    coalesce(max(parent), '') AS parent,
    max(versions)::INTEGER AS versions
FROM of_window
WHERE
    ts = last_read
    AND (
        kind = 'LocalQueue'
        OR split_part(resource, '@', 1) = 'nvidia.com/gpu'
        OR split_part(resource, '@', 1) IN (SELECT gpu_resource FROM node)
    )
GROUP BY cluster, kind, namespace, name
ORDER BY ALL
