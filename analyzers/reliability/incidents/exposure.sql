-- The hours and dollars in which failures could have happened: by job, node, GPU and model, and in
-- all. The hours of a job or node are those of its longest device, so that they are clock hours;
-- hours in which a device was unavailable are none; in all they are paid for.
-- `peers` is the model of a GPU, or of a node.
WITH device_hours AS (
    SELECT
        cluster,
        namespace,
        workload_kind,
        workload,
        coalesce(node, '') AS node,
        coalesce(model, 'unknown') AS model,
        device,
        bucket,
        sum(seconds) / 3600 AS hours,
        sum(gpu_seconds) / 3600 AS gpu_hours,
        sum(usd) AS usd,
        bool_and(priced) AS priced
    FROM ledger
    WHERE
        bucket >= $since AND bucket < $until AND state <> 'unavailable'
        AND ($cluster::VARCHAR IS null OR cluster = $cluster)
    GROUP BY ALL
),

jobs AS (
    SELECT
        cluster,
        namespace,
        workload_kind,
        workload,
        model,
        bucket,
        max(hours) AS hours,
        sum(gpu_hours) AS gpu_hours,
        sum(usd) AS usd,
        bool_and(priced) AS priced
    FROM device_hours
    WHERE namespace <> ''
    GROUP BY ALL
),

devices AS (
    SELECT
        cluster,
        node,
        model,
        device,
        bucket,
        sum(hours) AS hours,
        sum(gpu_hours) AS gpu_hours,
        sum(usd) AS usd,
        bool_and(priced) AS priced
    FROM device_hours
    GROUP BY ALL
),

nodes AS (
    SELECT
        cluster,
        node,
        any_value(model) AS model,
        bucket,
        max(hours) AS hours,
        sum(gpu_hours) AS gpu_hours,
        sum(usd) AS usd,
        bool_and(priced) AS priced
    FROM devices
    GROUP BY cluster, node, bucket
)

SELECT
    'job' AS dimension,
    cluster,
    concat_ws('/', workload_kind, namespace, workload) AS subject,
    min(model) AS peers,
    sum(hours) AS hours,
    sum(gpu_hours) AS gpu_hours,
    CASE WHEN bool_and(priced) THEN sum(usd) END AS usd
FROM jobs
GROUP BY ALL
UNION ALL BY NAME
SELECT
    'node' AS dimension,
    cluster,
    node AS subject,
    min(model) AS peers,
    sum(hours) AS hours,
    sum(gpu_hours) AS gpu_hours,
    CASE WHEN bool_and(priced) THEN sum(usd) END AS usd
FROM nodes
WHERE node <> ''
GROUP BY ALL
UNION ALL BY NAME
SELECT
    'gpu' AS dimension,
    cluster,
    device AS subject,
    min(model) AS peers,
    sum(hours) AS hours,
    sum(gpu_hours) AS gpu_hours,
    CASE WHEN bool_and(priced) THEN sum(usd) END AS usd
FROM devices
GROUP BY ALL
UNION ALL BY NAME
SELECT
    'model' AS dimension,
    '' AS cluster,
    model AS subject,
    '' AS peers,
    sum(gpu_hours) AS hours,
    sum(gpu_hours) AS gpu_hours,
    CASE WHEN bool_and(priced) THEN sum(usd) END AS usd
FROM devices
GROUP BY ALL
UNION ALL BY NAME
SELECT
    'all' AS dimension,
    '' AS cluster,
    '' AS subject,
    '' AS peers,
    coalesce(sum(gpu_seconds) FILTER (WHERE state <> 'unavailable'), 0) / 3600 AS hours,
    coalesce(sum(gpu_seconds), 0) / 3600 AS gpu_hours,
    CASE WHEN bool_and(priced) THEN sum(usd) END AS usd
FROM ledger
WHERE
    bucket >= $since AND bucket < $until
    AND ($cluster::VARCHAR IS null OR cluster = $cluster)
ORDER BY ALL
