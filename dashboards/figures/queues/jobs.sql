-- Objects by which jobs wait before they have pods.
SELECT
    cluster,
    namespace,
    name
FROM pending_workload
WHERE
    state IN ('pending', 'reserved', 'contradictory')
    AND last_seen >= $until::TIMESTAMP - INTERVAL 10 MINUTE
ORDER BY cluster, namespace, name
