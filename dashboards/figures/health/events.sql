-- The cluster's events of nodes, the newest first.
SELECT
    ts,
    cluster,
    name AS node,
    reason,
    type,
    message,
    count
FROM event
WHERE
    ts >= $since
    AND ts < $until
    AND kind = 'Node'
    AND ($cluster::VARCHAR IS null OR cluster = $cluster)
    AND (
        coalesce($team, $namespace, $model, $pool) IS null
        OR (cluster, name) IN (SELECT (d.cluster, d.node) FROM devices AS d)
    )
ORDER BY ts DESC, name ASC
LIMIT $most
