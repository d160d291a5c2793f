-- The size of each workload: the GPUs that it held at once, at most, in the window. An allocation
-- that ends when another begins does not overlap it.
WITH changes AS (
    SELECT
        cluster,
        namespace,
        workload_kind,
        workload,
        greatest(start, $since) AS changed_at,
        1 AS devices
    FROM allocation
    WHERE start < $until AND coalesce("end", $until) > $since
    UNION ALL BY NAME
    SELECT
        cluster,
        namespace,
        workload_kind,
        workload,
        "end" AS changed_at,
        -1 AS devices
    FROM allocation
    WHERE start < $until AND "end" > $since AND "end" < $until
),

sums AS (
    SELECT
        cluster,
        namespace,
        workload_kind,
        workload,
        sum(devices) OVER (
            PARTITION BY cluster, namespace, workload_kind, workload
            ORDER BY changed_at ASC, devices ASC ROWS UNBOUNDED PRECEDING
        ) AS devices
    FROM changes
)

SELECT
    cluster,
    namespace || '/' || workload_kind || '/' || workload AS workload,
    max(devices) AS devices
FROM sums
GROUP BY ALL
