-- Node-hours of each hour on nodes of a reserved kind: present, and allocated.
SELECT
    date_trunc('hour', l.bucket) AS hour,
    sum(l.gpu_seconds) / 3600 / $gpus AS node_hours,
    coalesce(sum(l.gpu_seconds) FILTER (WHERE l.namespace <> ''), 0) / 3600 / $gpus
        AS held_node_hours,
    coalesce(sum(l.gpu_seconds) FILTER (WHERE l.state IN ('productive', 'low')), 0) / 3600 / $gpus
        AS used_node_hours
FROM ledger AS l
INNER JOIN node_eras AS n
    ON
        l.cluster = n.cluster AND l.node = n.node
        AND l.bucket >= n.holds_from AND l.bucket < n.holds_to
WHERE
    l.bucket >= $since AND l.bucket < $until
    AND n.instance_type = $instance_type
    AND ($region = '' OR coalesce(n.region, '') IN ('', $region))
    AND coalesce(n.capacity_type, '') <> 'spot'
GROUP BY ALL
ORDER BY hour ASC
