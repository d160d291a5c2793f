-- Node-hours of each hour on nodes of a reserved kind: present, and allocated.
WITH kind AS (
    SELECT
        cluster,
        node
    FROM node
    WHERE
        instance_type = $instance_type
        AND ($region = '' OR coalesce(region, '') IN ('', $region))
        AND coalesce(capacity_type, '') <> 'spot'
        AND ($cluster::VARCHAR IS null OR cluster = $cluster)
)

SELECT
    date_trunc('hour', l.bucket) AS hour,
    sum(l.gpu_seconds) / 3600 / $gpus AS node_hours,
    coalesce(sum(l.gpu_seconds) FILTER (WHERE l.namespace <> ''), 0) / 3600 / $gpus
        AS held_node_hours,
    coalesce(sum(l.gpu_seconds) FILTER (WHERE l.state IN ('productive', 'low')), 0) / 3600 / $gpus
        AS used_node_hours
FROM ledger AS l
INNER JOIN kind AS k ON l.cluster = k.cluster AND l.node = k.node
WHERE l.bucket >= $since AND l.bucket < $until
GROUP BY ALL
ORDER BY hour ASC
