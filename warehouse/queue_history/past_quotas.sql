-- Quotas of GPUs and the queues that lead to them, as they were last read in the window. Kueue's
-- flavors of one resource are added up; `versions` counts the values of the nominal quota.
WITH last_amounts AS (
    SELECT
        cluster,
        kind,
        coalesce(namespace, '') AS namespace,
        name,
        resource,
        arg_max(nominal, ts)::DOUBLE AS nominal,
        arg_max("limit", ts)::DOUBLE AS "limit",
        arg_max(lending, ts)::DOUBLE AS lending,
        coalesce(arg_max(parent, ts), '') AS parent,
        count(DISTINCT nominal)::INTEGER AS versions
    FROM quota
    WHERE
        ts >= $since::TIMESTAMP
        AND ts < $until::TIMESTAMP
        AND (
            kind = 'LocalQueue'
            OR split_part(resource, '@', 1) = 'nvidia.com/gpu'
            OR split_part(resource, '@', 1) IN (SELECT gpu_resource FROM node)
        )
        AND ($cluster::VARCHAR IS null OR cluster = $cluster)
    GROUP BY ALL
)

SELECT
    cluster,
    kind,
    namespace,
    name,
    sum(nominal) AS nominal,
    CASE WHEN count("limit") = count(*) THEN sum("limit") END AS "limit",
    CASE WHEN count(lending) = count(*) THEN sum(lending) END AS lending,
    max(parent) AS parent,
    max(versions) AS versions
FROM last_amounts
GROUP BY ALL
ORDER BY ALL
