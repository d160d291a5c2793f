-- GPUs that are paid and that no exporter shows, in the newest hour of each cluster's ledger with
-- telemetry: the nodes that have some, with the workloads there whose devices no source names, and
-- all nodes in one row (node null).
WITH newest AS (
    SELECT
        cluster,
        max(time_bucket(INTERVAL 1 HOUR, bucket)) AS hour
    FROM ledger
    WHERE
        bucket >= $since AND bucket < $until AND ($cluster IS NULL OR cluster = $cluster)
        AND NOT contains(device, '/untracked')
    GROUP BY cluster
),

device_hour AS (
    SELECT
        n.cluster,
        n.hour,
        l.node,
        contains(l.device, '/untracked') AS unseen,
        sum(l.gpu_seconds) / sum(l.seconds) AS gpus
    FROM newest AS n
    INNER JOIN ledger AS l
        ON
            n.cluster = l.cluster AND n.hour <= l.bucket
            AND l.bucket < n.hour + INTERVAL 1 HOUR
    GROUP BY n.cluster, n.hour, l.node, l.device
),

gpus AS (
    SELECT
        cluster,
        hour,
        node,
        sum(gpus) AS paid,
        coalesce(sum(gpus) FILTER (WHERE unseen), 0) AS unseen
    FROM device_hour
    GROUP BY cluster, hour, node
),

holders AS (
    SELECT
        g.cluster,
        g.node,
        list(DISTINCT a.namespace || '/' || a.workload) AS names
    FROM gpus AS g
    INNER JOIN pod AS p ON g.cluster = p.cluster AND g.node = p.node
    INNER JOIN allocation AS a ON p.cluster = a.cluster AND p.uid = a.pod_uid
    WHERE
        a.rule = 'request' AND a.start < g.hour + INTERVAL 1 HOUR AND a."end" > g.hour
    GROUP BY g.cluster, g.node
)

SELECT
    g.node,
    round(g.unseen)::BIGINT AS unseen,
    round(g.paid)::BIGINT AS paid,
    coalesce(list_sort(h.names), []) AS holders
FROM gpus AS g
LEFT JOIN holders AS h ON g.cluster = h.cluster AND g.node = h.node
WHERE g.unseen > 0.5 AND g.node IS NOT NULL
UNION ALL BY NAME
SELECT
    NULL AS node,
    round(coalesce(sum(unseen), 0))::BIGINT AS unseen,
    round(coalesce(sum(paid), 0))::BIGINT AS paid,
    [] AS holders
FROM gpus
ORDER BY unseen DESC, node ASC
